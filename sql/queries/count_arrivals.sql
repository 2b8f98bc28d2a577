-- count_arrivals: how many jobs entered the queue in each of the last minutes: new ones, and those queued again by hand
-- Read from jobs_by_status and job_events_again: nothing older is looked at.
-- Parameters: minutes
-- Rows: one per minute with any: at, jobs
SELECT date_trunc('minute', at) AS at, count(*) AS jobs
  FROM (SELECT created_at AS at FROM {schema}.jobs
         WHERE status IN ('uploaded', 'queued', 'processing', 'complete', 'failed')
           AND created_at >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute'
        UNION ALL
        SELECT at FROM {schema}.job_events
         WHERE event_type = 'retry' AND at >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute'
           AND meta ->> 'reason' = 'manual'
        UNION ALL
        SELECT at FROM {schema}.job_events
         WHERE event_type = 'queued' AND meta ? 'reason'
           AND at >= date_trunc('minute', now()) - (%(minutes)s - 1) * interval '1 minute') AS entered
 GROUP BY 1
