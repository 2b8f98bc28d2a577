-- get_session_job: one job as its owner sees it
-- last_error, waits and retry_after are those of list_session_jobs.
-- Parameters: id
-- Rows: one, or none
SELECT job.id, job.route, job.status,
       job.original_filename, job.bytes, job.mapping, job.priority, job.attempt_count,
       job.error_code, job.error_message, job.dead_letter,
       CASE WHEN NOT (job.paused OR job.over_cap) THEN job.retry_after END AS retry_after,
       job.created_at, job.queued_at,
       job.started_at, job.not_before, job.deadline,
       job.completed_at, job.failed_at, job.cancelled_at, job.updated_at, now() AS now, job.result_path,
       job.upload_path IS NOT NULL AS has_source,
       job.status = 'queued' AND coalesce((
           SELECT true FROM {schema}.pauses
            WHERE (gateway IS NULL OR gateway = job.route)
              AND (owner IS NULL OR owner = job.owner_session_id) LIMIT 1), false) AS is_paused,
       job.status = 'queued' AND (job.over_cap OR {schema}.owner_is_at_cap(job.owner_session_id))
           AS is_limited,
       job.status = 'failed' AND coalesce((  -- not EXISTS: the planner might read all dependencies for it
           SELECT true FROM {schema}.job_dependencies AS dependency
             JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
            WHERE dependency.job_id = job.id AND needed.status <> 'complete' LIMIT 1), false) AS waits,
       (SELECT to_jsonb(progress) - 'job_id' FROM {schema}.job_progress AS progress
         WHERE progress.job_id = job.id AND job.status = 'processing') AS progress,
       (SELECT jsonb_build_object(
                   'code', event.meta -> 'error_code',
                   'message', coalesce(event.meta ->> 'error_message', 'the gateway was busy'))
          FROM {schema}.job_events AS event
         WHERE event.job_id = job.id
           AND (event.meta ? 'error_message' OR event.meta ->> 'reason' = 'busy')
           AND (job.status = 'queued' AND job.retry_after IS NOT NULL
                OR job.status = 'processing' AND job.attempt_count > 1)
         ORDER BY event.id DESC LIMIT 1) AS last_error
  FROM {schema}.jobs AS job
 WHERE job.id = %(id)s
