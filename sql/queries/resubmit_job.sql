-- resubmit_job: failed, complete or cancelled -> queued, from a new copy of its file; reset as by a retry
-- What the new submission asks for replaces what the old one did; the content and the mapping are the same.
-- A cancelled job that waits for another one becomes `uploaded`.
-- Parameters: id, upload_path, pretty, priority, not_before, deadline
-- Rows: one, or none when it has moved on
WITH old AS MATERIALIZED (
    SELECT id, status FROM {schema}.jobs WHERE id = %(id)s AND {schema}.is_terminal(status) FOR NO KEY UPDATE
), judged AS MATERIALIZED (
    SELECT id, status, status = 'cancelled' AND EXISTS (
               SELECT FROM {schema}.job_dependencies AS dependency
                 JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
                WHERE dependency.job_id = old.id AND needed.status <> 'complete') AS waits
      FROM old
), started AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN waits THEN 'uploaded' ELSE 'queued' END, upload_path = %(upload_path)s,
           result_path = NULL, error_code = NULL, error_message = NULL, dead_letter = false,
           attempt_count = 0, retry_after = NULL, queued_at = CASE WHEN NOT waits THEN now() END,
           started_at = NULL, completed_at = NULL, failed_at = NULL, expires_at = NULL, pretty = %(pretty)s,
           priority = %(priority)s, not_before = %(not_before)s, deadline = %(deadline)s
      FROM judged
     WHERE job.id = judged.id
    RETURNING job.id, judged.status AS came_from, judged.waits
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, CASE WHEN waits THEN 'retry' ELSE 'queued' END, jsonb_strip_nulls(jsonb_build_object(
               'reason', CASE WHEN waits THEN 'manual' ELSE 'resubmitted' END, 'from', came_from,
               'to', CASE WHEN waits THEN 'uploaded' END))
      FROM started
)
SELECT id FROM started
