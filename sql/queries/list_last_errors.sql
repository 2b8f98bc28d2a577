-- list_last_errors: jobs that have failed or wait for their retry, the last error first
-- Each candidate comes from the end of an index. The last failures are in the events; where those jobs have
-- been retried since, the youngest failed jobs fill the list. OFFSET 0 keeps the planner from joining them
-- with the whole table.
-- Parameters: states (failed, retrying), limit
-- Rows: one per job: id, state, error_code, error_message, at, ...
WITH candidates AS MATERIALIZED (
    (SELECT job_id AS id FROM {schema}.job_events
      WHERE event_type = 'failed' ORDER BY at DESC LIMIT %(limit)s)
    UNION
    (SELECT id FROM {schema}.jobs WHERE status = 'failed' ORDER BY created_at DESC LIMIT %(limit)s)
    UNION
    (SELECT id FROM {schema}.jobs
      WHERE status = 'queued' AND retry_after < '9999-01-01 00:00+00'  -- neither parked nor paused
        AND retry_after IS DISTINCT FROM not_before              -- it waits for its time
      ORDER BY retry_after DESC LIMIT %(limit)s)
)
SELECT job.id, seen.state, job.attempt_count AS attempts, job.dead_letter, job.retry_after,
       job.owner_session_id, job.original_filename,
       coalesce(job.error_code, last.error_code) AS error_code,
       coalesce(job.error_message, last.error_message) AS error_message,
       coalesce(job.failed_at, last.at, job.updated_at) AS at
  FROM candidates
 CROSS JOIN LATERAL (SELECT * FROM {schema}.jobs WHERE id = candidates.id OFFSET 0) AS job
 CROSS JOIN LATERAL (
       SELECT CASE WHEN job.status = 'failed' THEN 'failed'
                   WHEN job.status = 'queued' AND job.retry_after IS NOT NULL
                        AND job.retry_after IS DISTINCT FROM job.not_before THEN 'retrying' END AS state)
                       AS seen
  LEFT JOIN LATERAL (
       SELECT event.at, event.meta ->> 'error_code' AS error_code, event.meta ->> 'error_message'
           AS error_message
         FROM {schema}.job_events AS event
        WHERE event.job_id = job.id AND event.meta ? 'error_code'
        ORDER BY event.id DESC
        LIMIT 1) AS last ON true
 WHERE seen.state = ANY (%(states)s)
 ORDER BY coalesce(job.failed_at, last.at, job.updated_at) DESC, job.id
 LIMIT %(limit)s
