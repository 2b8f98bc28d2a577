-- get_gateway_times: how long the last gateway calls took
-- Another program may have written a call without its time, or anything as its time: it is not counted.
-- Parameters: calls (at most), first_event (an older one is not read)
-- Rows: one: calls, p50, p95 and p99 in seconds, null without a call, and are_enough: so many calls were
--   found, with or without a time
SELECT count(seconds) AS calls, count(*) >= %(calls)s AS are_enough,
       percentile_cont(0.50) WITHIN GROUP (ORDER BY seconds) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY seconds) AS p99
  FROM (SELECT CASE jsonb_typeof(meta -> 'gateway_ms') WHEN 'number'
                   THEN (meta ->> 'gateway_ms')::double precision / 1000 END AS seconds
          FROM {schema}.job_events
         WHERE meta ? 'gateway_ok' AND id >= %(first_event)s::bigint
         ORDER BY id DESC
         LIMIT %(calls)s) AS last
