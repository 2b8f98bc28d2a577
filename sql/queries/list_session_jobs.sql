-- list_session_jobs: a visitor's jobs, newest first, from a position on, and what may delay them
-- One statement, because pages request it every second: queue_breaker (the worst of these gateways),
-- active_servers and active are the same in every row; breaker is that of the job's own gateway. last_error:
-- code and message of the attempt before, for a job that waits for its retry or is in it; the row itself has
-- them once the job has failed. A busy gateway has no code. The event is found by its meta, not by its type:
-- the index by type is for the last hour of all jobs, and the planner might choose it. waits: the job
-- failed, and another one must be complete before it is started over. retry_after is null where the pause or
-- the limit of its owner has set it: nobody knows when that ends.
-- Parameters: gateways, heartbeat_timeout (s), owner, statuses, before_created_at, before_id, limit
-- Rows: one per job; without a job one in which id is null
WITH state AS MATERIALIZED (
    SELECT coalesce((
               SELECT state FROM {schema}.circuit_breaker WHERE gateway = ANY (%(gateways)s::text[])
                ORDER BY array_position(ARRAY['open', 'half_open', 'closed'], state) LIMIT 1), 'closed')
               AS queue_breaker,
           (SELECT count(*) FROM {schema}.servers
             WHERE status = 'active' AND last_heartbeat_at
                   >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active_servers,
           (SELECT count(*) FROM {schema}.jobs
             WHERE owner_session_id = %(owner)s AND {schema}.is_active(status)) AS active
)
SELECT state.*, now() AS now, page.*
  FROM state
  LEFT JOIN LATERAL (
       SELECT coalesce((SELECT state FROM {schema}.circuit_breaker WHERE gateway = job.route), 'closed')
                  AS breaker,
              job.id, job.status, job.original_filename, job.bytes, job.mapping, job.priority,
              job.attempt_count, job.error_code, job.error_message, job.dead_letter,
              CASE WHEN NOT (job.paused OR job.over_cap) THEN job.retry_after END AS retry_after,
              job.created_at, job.queued_at, job.started_at, job.not_before, job.deadline,
              job.completed_at, job.failed_at, job.cancelled_at, job.updated_at, job.result_path,
              job.upload_path IS NOT NULL AS has_source,
              job.status = 'queued' AND coalesce((
                  SELECT true FROM {schema}.pauses WHERE (gateway IS NULL OR gateway = job.route)
                     AND (owner IS NULL OR owner = job.owner_session_id) LIMIT 1), false) AS is_paused,
              job.status = 'queued' AND (job.over_cap OR {schema}.owner_is_at_cap(job.owner_session_id))
                  AS is_limited,
              -- not EXISTS: the planner might read all dependencies for it
              job.status = 'failed' AND coalesce((
                  SELECT true FROM {schema}.job_dependencies AS dependency
                    JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
                   WHERE dependency.job_id = job.id AND needed.status <> 'complete' LIMIT 1), false) AS waits,
              (SELECT to_jsonb(progress) - 'job_id' FROM {schema}.job_progress AS progress
                WHERE progress.job_id = job.id AND job.status = 'processing') AS progress,
              (SELECT jsonb_build_object('code', event.meta -> 'error_code', 'message', coalesce(
                          event.meta ->> 'error_message', 'the gateway was busy'))
                 FROM {schema}.job_events AS event
                WHERE event.job_id = job.id
                  AND (event.meta ? 'error_message' OR event.meta ->> 'reason' = 'busy')
                  AND (job.status = 'queued' AND job.retry_after IS NOT NULL
                       OR job.status = 'processing' AND job.attempt_count > 1)
                ORDER BY event.id DESC LIMIT 1) AS last_error
         FROM {schema}.jobs AS job
        WHERE job.owner_session_id = %(owner)s AND job.status = ANY (%(statuses)s::text[])
          AND job.created_at <= %(before_created_at)s
          AND (job.created_at < %(before_created_at)s OR job.id > %(before_id)s)
        ORDER BY job.created_at DESC, job.id
        LIMIT %(limit)s) AS page ON true
 ORDER BY page.created_at DESC, page.id
