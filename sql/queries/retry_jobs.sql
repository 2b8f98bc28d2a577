-- retry_jobs: failed -> queued, by hand and in bulk; the caller has seen the source files
-- Parameters: ids
-- Rows: one per job that was still failed
WITH queued AS (
    UPDATE {schema}.jobs
       SET status = 'queued', error_code = NULL, error_message = NULL, dead_letter = false, attempt_count = 0,
           retry_after = NULL, queued_at = now(), started_at = NULL, failed_at = NULL
     WHERE id = ANY (%(ids)s::uuid[]) AND status = 'failed'
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', jsonb_build_object('reason', 'manual') FROM queued
)
SELECT id FROM queued
