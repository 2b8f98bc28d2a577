-- count_minutes: how many jobs were completed, failed, cancelled and tried again in each of the last minutes
-- Stretches of job_events_outcomes, job_events_again and jobs_cancelled: nothing older is looked at. A job
-- that was cancelled and started over since is not counted as cancelled. Each type is a branch of its own,
-- so that the many that complete are counted in the index alone. Times in the future, which only another
-- program writes, are in no minute of the chart.
-- Parameters: minutes
-- Rows: one per minute: at, completed, failed, cancelled, retries, errors (jobs by code)
WITH counted AS (
    SELECT date_bin('1 minute', at, 'epoch') AS minute, 'complete' AS kind, NULL AS code, count(*) AS number
      FROM {schema}.job_events
     WHERE event_type = 'complete'
       AND at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
       AND at < now() + interval '1 minute'
     GROUP BY 1
    UNION ALL
    SELECT date_bin('1 minute', at, 'epoch'), 'failed', coalesce(meta ->> 'error_code', 'UNKNOWN') AS code,
           count(*)
      FROM {schema}.job_events
     WHERE event_type = 'failed'
       AND at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
       AND at < now() + interval '1 minute'
     GROUP BY 1, 3
    UNION ALL
    SELECT date_bin('1 minute', at, 'epoch'), 'retry', NULL, count(*)
      FROM {schema}.job_events
     WHERE event_type = 'retry'
       AND at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
       AND at < now() + interval '1 minute'
       AND coalesce(meta ->> 'reason', '') NOT IN ('manual', 'now')
     GROUP BY 1
    UNION ALL
    SELECT date_bin('1 minute', cancelled_at, 'epoch'), 'cancelled', NULL, count(*)
      FROM {schema}.jobs
     WHERE cancelled_at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
       AND cancelled_at < now() + interval '1 minute'
     GROUP BY 1
)
SELECT minute AS at,
       coalesce(sum(number) FILTER (WHERE kind = 'complete'), 0)::bigint AS completed,
       coalesce(sum(number) FILTER (WHERE kind = 'failed'), 0)::bigint AS failed,
       coalesce(sum(number) FILTER (WHERE kind = 'cancelled'), 0)::bigint AS cancelled,
       coalesce(sum(number) FILTER (WHERE kind = 'retry'), 0)::bigint AS retries,
       coalesce(jsonb_object_agg(code, number ORDER BY code) FILTER (WHERE kind = 'failed'), '{}') AS errors
  FROM generate_series(date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute',
                       date_bin('1 minute', now(), 'epoch'), interval '1 minute') AS minute
  LEFT JOIN counted USING (minute)
 GROUP BY minute
 ORDER BY minute
