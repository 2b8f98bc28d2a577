-- list_session_jobs: a visitor's jobs, newest first, from a place in the list on, and what can keep them waiting
-- One statement, because pages ask for it every second: breaker, active_servers and active are the same in every row.
-- last_error: why the attempt before the wait for a retry did not succeed; the row itself has it once the job has failed.
-- It is found by its words, not by its type: the index by type is for the last hour of all jobs, and would tempt the planner.
-- Parameters: heartbeat_timeout (s), owner, statuses, before_created_at, before_id, limit
-- Rows: one per job; without a job one in which id is null
WITH state AS MATERIALIZED (
    SELECT state AS breaker,
           (SELECT count(*) FROM {schema}.servers
             WHERE status = 'active'
               AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active_servers,
           (SELECT count(*) FROM {schema}.jobs
             WHERE owner_session_id = %(owner)s AND status IN ('uploaded', 'queued', 'processing')) AS active
      FROM {schema}.circuit_breaker
)
SELECT state.*, now() AS now, page.*
  FROM state
  LEFT JOIN LATERAL (
       SELECT job.id, job.status, job.original_filename, job.bytes, job.mapping, job.priority, job.attempt_count, job.error_code,
              job.error_message, job.dead_letter, job.retry_after, job.created_at, job.queued_at, job.started_at,
              job.completed_at, job.failed_at, job.updated_at, job.result_path IS NOT NULL AS has_result,
              job.upload_path IS NOT NULL AS has_source,
              (SELECT to_jsonb(progress) - 'job_id' FROM {schema}.job_progress AS progress
                WHERE progress.job_id = job.id AND job.status = 'processing') AS progress,
              (SELECT event.meta ->> 'error_message' FROM {schema}.job_events AS event
                WHERE event.job_id = job.id AND job.status = 'queued' AND job.retry_after IS NOT NULL
                  AND event.meta ? 'error_message'
                ORDER BY event.id DESC LIMIT 1) AS last_error
         FROM {schema}.jobs AS job
        WHERE job.owner_session_id = %(owner)s AND job.status = ANY (%(statuses)s::text[])
          AND job.created_at <= %(before_created_at)s
          AND (job.created_at < %(before_created_at)s OR job.id > %(before_id)s)
        ORDER BY job.created_at DESC, job.id
        LIMIT %(limit)s) AS page ON true
 ORDER BY page.created_at DESC, page.id
