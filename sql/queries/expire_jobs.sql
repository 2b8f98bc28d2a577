-- expire_jobs: uploaded or queued -> failed, jobs whose deadline has passed before an attempt could begin
-- An attempt that has begun may end later. Locked first: a claim that comes before the lock wins, and a later
-- one skips the row.
-- Parameters: (none)
-- Rows: one per job, at most 100: id, attempt, error_code, error_message
WITH late AS MATERIALIZED (
    SELECT id, status FROM {schema}.jobs
     WHERE deadline <= now() AND status IN ('uploaded', 'queued')
     ORDER BY deadline LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
), expired AS (
    UPDATE {schema}.jobs AS job
       SET status = 'failed', failed_at = now(), retry_after = NULL, error_code = 'EXPIRED',
           error_message = 'the deadline passed before '
               || CASE attempt_count WHEN 0 THEN 'the first' ELSE 'another' END || ' attempt could begin'
      FROM late
     WHERE job.id = late.id AND job.leased_by IS NULL
    RETURNING job.id, job.attempt_count AS attempt, job.error_code, job.error_message,
              late.status AS came_from
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, 'failed', jsonb_build_object(
               'from', came_from, 'error_code', error_code, 'error_message', error_message)
      FROM expired
)
SELECT id, attempt, error_code, error_message FROM expired
