-- retry_job: failed -> queued, by hand; the caller has seen the source file
-- Parameters: id
-- Rows: one, or none when it is not failed
WITH queued AS (
    UPDATE {schema}.jobs
       SET status = 'queued', error_code = NULL, error_message = NULL, dead_letter = false, attempt_count = 0,
           retry_after = NULL, queued_at = now(), started_at = NULL, failed_at = NULL
     WHERE id = %(id)s AND status = 'failed'
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', jsonb_build_object('reason', 'manual') FROM queued
)
SELECT id FROM queued
