-- retry_jobs: failed -> queued, by hand and in bulk; the caller has seen the source files
-- A job that waits for another one is left out: guard_job would refuse it, and with it all the others.
-- Parameters: ids
-- Rows: one per job that was still failed
WITH queued AS (
    UPDATE {schema}.jobs AS job
       SET status = 'queued', error_code = NULL, error_message = NULL, dead_letter = false, attempt_count = 0,
           retry_after = NULL, queued_at = now(), started_at = NULL, failed_at = NULL
     WHERE id = ANY (%(ids)s::uuid[]) AND status = 'failed'
       AND NOT EXISTS (
           SELECT FROM {schema}.job_dependencies AS dependency
             JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
            WHERE dependency.job_id = job.id AND needed.status <> 'complete')
    RETURNING id
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', jsonb_build_object('reason', 'manual') FROM queued
)
SELECT id FROM queued
