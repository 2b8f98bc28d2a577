-- resubmit_job: failed or complete -> queued, from a new copy of its file; reset as by a manual retry
-- What the new submission asks for replaces what the old one did; the content and the mapping are the same.
-- Parameters: id, upload_path, pretty, priority
-- Rows: one, or none when it has moved on
WITH old AS MATERIALIZED (
    SELECT id, status FROM {schema}.jobs WHERE id = %(id)s AND {schema}.is_terminal(status) FOR NO KEY UPDATE
), queued AS (
    UPDATE {schema}.jobs AS job
       SET status = 'queued', upload_path = %(upload_path)s, result_path = NULL, error_code = NULL,
           error_message = NULL,
           dead_letter = false, attempt_count = 0, retry_after = NULL, queued_at = now(), started_at = NULL,
           completed_at = NULL, failed_at = NULL, expires_at = NULL, pretty = %(pretty)s,
           priority = %(priority)s
      FROM old
     WHERE job.id = old.id
    RETURNING job.id, old.status AS came_from
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'queued', jsonb_build_object('reason', 'resubmitted', 'from', came_from) FROM queued
)
SELECT id FROM queued
