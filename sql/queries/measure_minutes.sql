-- measure_minutes: how long gateway calls took in each of the last minutes, the present one last
-- Of a busy minute the first calls of each kind stand for the rest: what is read is bounded, whatever the
-- pace.
-- Parameters: minutes, calls (at most, of each kind in each minute)
-- Rows: one per minute: at, p50 and p95 in milliseconds, null without a call
SELECT minute AS at,
       percentile_cont(0.50) WITHIN GROUP (ORDER BY ms) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY ms) AS p95
  FROM generate_series(date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute',
                       date_bin('1 minute', now(), 'epoch'), interval '1 minute') AS minute
  LEFT JOIN LATERAL (
       -- another program may have written anything
       SELECT CASE jsonb_typeof(meta -> 'gateway_ms') WHEN 'number'
                   THEN (meta ->> 'gateway_ms')::double precision END AS ms
         FROM ((SELECT meta FROM {schema}.job_events
                 WHERE event_type = 'complete' AND at >= minute AND at < minute + interval '1 minute'
                 ORDER BY at LIMIT %(calls)s)
               UNION ALL
               (SELECT meta FROM {schema}.job_events
                 WHERE event_type = 'failed' AND at >= minute AND at < minute + interval '1 minute'
                 ORDER BY at LIMIT %(calls)s)
               UNION ALL
               (SELECT meta FROM {schema}.job_events
                 WHERE event_type = 'retry' AND at >= minute AND at < minute + interval '1 minute'
                 ORDER BY at LIMIT %(calls)s)) AS ended
        WHERE meta ? 'gateway_ok') AS call ON true
 GROUP BY minute
 ORDER BY minute
