-- retry_jobs: failed or cancelled -> queued, by hand and in bulk; the caller has seen the source files
-- A failed job that waits for another one is left out: guard_job would refuse it, and with it all the others.
-- A cancelled one becomes `uploaded`, and is queued when that other job is complete.
-- Parameters: ids
-- Rows: one per job that was still failed or cancelled: id, run
WITH ended AS MATERIALIZED (
    SELECT id, status FROM {schema}.jobs
     WHERE id = ANY (%(ids)s::uuid[]) AND status IN ('failed', 'cancelled')
     ORDER BY id FOR NO KEY UPDATE
), judged AS MATERIALIZED (
    SELECT id, status, EXISTS (
               SELECT FROM {schema}.job_dependencies AS dependency
                 JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
                WHERE dependency.job_id = ended.id AND needed.status <> 'complete') AS waits
      FROM ended
), started AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN waits THEN 'uploaded' ELSE 'queued' END, error_code = NULL,
           error_message = NULL, dead_letter = false, attempt_count = 0, retry_after = NULL,
           queued_at = CASE WHEN NOT waits THEN now() END, started_at = NULL, failed_at = NULL,
           not_before = NULL, deadline = NULL
      FROM judged
     WHERE job.id = judged.id AND NOT (judged.waits AND judged.status = 'failed')
    RETURNING job.id, job.run, judged.status AS came_from, judged.waits
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'retry', jsonb_strip_nulls(jsonb_build_object(
               'reason', 'manual', 'from', nullif(came_from, 'failed'),
               'to', CASE WHEN waits THEN 'uploaded' END))
      FROM started
)
SELECT id, run FROM started
