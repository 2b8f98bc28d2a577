-- count_outcomes: how many jobs were completed, and failed, within the last 1, 5 and 60 minutes
-- Parameters: first_event (of the last day: get_first_event)
-- Rows: one
SELECT count(*) FILTER (WHERE event_type = 'complete' AND at > now() - interval '1 minute') AS completed_1m,
       count(*) FILTER (WHERE event_type = 'complete' AND at > now() - interval '5 minutes') AS completed_5m,
       count(*) FILTER (WHERE event_type = 'complete') AS completed_60m,
       count(*) FILTER (WHERE event_type = 'failed') AS failed_60m
  FROM {schema}.job_events
 WHERE event_type IN ('complete', 'failed') AND at > now() - interval '60 minutes'
   AND id >= %(first_event)s::bigint
