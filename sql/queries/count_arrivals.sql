-- count_arrivals: how many jobs entered the queue in each of the last minutes: new ones, and manual retries
-- Read from jobs_by_status and job_events_again: nothing older is looked at. Times in the future, which
-- only another program writes, are in no minute of the chart.
-- Parameters: minutes
-- Rows: one per minute with any: at, jobs
SELECT date_bin('1 minute', at, 'epoch') AS at, count(*) AS jobs
  FROM (SELECT created_at AS at FROM {schema}.jobs
         WHERE status = ANY ({schema}.job_statuses())
           AND created_at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
           AND created_at < now() + interval '1 minute'
        UNION ALL
        SELECT at FROM {schema}.job_events
         WHERE event_type = 'retry' AND meta ->> 'reason' = 'manual'
           AND at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
           AND at < now() + interval '1 minute'
        UNION ALL
        SELECT at FROM {schema}.job_events
         WHERE event_type = 'queued' AND meta ? 'reason'
           AND at >= date_bin('1 minute', now(), 'epoch') - (%(minutes)s - 1) * interval '1 minute'
           AND at < now() + interval '1 minute') AS entered
 GROUP BY 1
