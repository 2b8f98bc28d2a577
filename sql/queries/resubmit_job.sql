-- resubmit_job: failed or complete -> queued, from a new copy of its file; everything reset as by a manual retry
-- Parameters: id, upload_path
-- Rows: one, or none when it has moved on
WITH queued AS (
    UPDATE {schema}.jobs
       SET status = 'queued', upload_path = %(upload_path)s, result_path = NULL, error_code = NULL, error_message = NULL,
           dead_letter = false, attempt_count = 0, retry_after = NULL, queued_at = now(), started_at = NULL,
           completed_at = NULL, failed_at = NULL, expires_at = NULL
     WHERE id = %(id)s AND status IN ('failed', 'complete')
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'queued', jsonb_build_object('reason', 'resubmitted') FROM queued
)
SELECT id FROM queued
