-- count_errors: how many jobs failed within the last 24 hours, by code, most frequent first
-- Parameters: first_event (of the last day: get_first_event)
-- Rows: one per code: code, jobs
SELECT coalesce(meta ->> 'error_code', 'UNKNOWN') AS code, count(*) AS jobs
  FROM {schema}.job_events
 WHERE event_type = 'failed' AND at > now() - interval '24 hours' AND id >= %(first_event)s::bigint
 GROUP BY 1
 ORDER BY 2 DESC, 1
