-- count_last_outcomes: how many jobs were completed, and failed, within the last seconds
-- A short stretch of job_events_outcomes, for a screen that asks every second; count_outcomes looks back an
-- hour.
-- Parameters: (none)
-- Rows: one: now, completed_10s, completed_60s, failed_60s
SELECT now() AS now,
       count(*) FILTER (WHERE event_type = 'complete' AND at > now() - interval '10 seconds')
           AS completed_10s,
       count(*) FILTER (WHERE event_type = 'complete') AS completed_60s,
       count(*) FILTER (WHERE event_type = 'failed') AS failed_60s
  FROM {schema}.job_events
 WHERE event_type IN ('complete', 'failed') AND at > now() - interval '60 seconds'
