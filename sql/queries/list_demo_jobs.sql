-- list_demo_jobs: where the demo's jobs are, with the last error of one that was retried
-- Parameters: ids
-- Rows: one per job, in the order of the ids
SELECT job.id, job.status, job.attempt_count, job.error_code, job.error_message, job.dead_letter,
       job.retry_after,
       now() AS now,
       extract(epoch FROM coalesce(job.completed_at, job.failed_at, job.cancelled_at) - job.created_at)::float
           AS seconds,
       (SELECT jsonb_build_object(
                   'code', event.meta -> 'error_code', 'message', event.meta -> 'error_message')
          FROM {schema}.job_events AS event
         WHERE event.job_id = job.id AND event.event_type = 'retry' ORDER BY event.id DESC LIMIT 1)
             AS last_error
  FROM {schema}.jobs AS job
 WHERE job.id = ANY (%(ids)s::uuid[])
 ORDER BY array_position(%(ids)s::uuid[], job.id)
