-- list_jobs: newest first, from a position in the list on, of every owner
-- Each status is read from its end of jobs_by_status, so that a million older rows are not looked at.
-- retry_after is that of list_session_jobs.
-- Parameters: statuses, error_code (null means any), dead_only, before_created_at, before_id, limit
-- Rows: one per job
SELECT id, status, owner_session_id, original_filename, bytes, mapping, priority, attempt_count, error_code,
       error_message, dead_letter, CASE WHEN NOT (paused OR over_cap) THEN retry_after END AS retry_after,
       leased_by, created_at, queued_at, started_at, completed_at, failed_at, cancelled_at,
       updated_at, now() AS now
  FROM unnest(%(statuses)s::text[]) AS wanted (status_wanted)
 CROSS JOIN LATERAL (
       SELECT * FROM {schema}.jobs
        WHERE status = status_wanted AND (%(error_code)s::text IS NULL OR error_code = %(error_code)s)
          AND (dead_letter OR NOT %(dead_only)s)
          AND created_at <= %(before_created_at)s
              AND (created_at < %(before_created_at)s OR id > %(before_id)s)
        ORDER BY created_at DESC, id
        LIMIT %(limit)s) AS newest
 ORDER BY created_at DESC, id
 LIMIT %(limit)s
