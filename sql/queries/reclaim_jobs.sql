-- reclaim_jobs: processing -> queued, when the lease or its server is lost; or failed, without attempts left
-- A holder that is not in servers is judged by its lease alone. Locked first, checked again in the update:
-- an extension or a completion that comes in between wins.
-- Parameters: max_attempts
-- Rows: one per job, at most 100: id, attempt, holder, status, reason, error_code, error_message
WITH lost AS MATERIALIZED (
    SELECT job.id, job.attempt_count AS attempt, job.leased_by AS holder,
           job.attempt_count >= %(max_attempts)s AS gives_up,
           CASE WHEN server.id IS NULL THEN 'lease expired' ELSE 'server ' || server.status END AS reason
      FROM {schema}.jobs AS job
      LEFT JOIN {schema}.servers AS server
        ON server.id = regexp_replace(job.leased_by, '/[^/]*$', '') AND server.status IN ('stopped', 'dead')
     WHERE job.status = 'processing' AND (job.lease_expires_at < now() OR server.id IS NOT NULL)
     LIMIT 100 FOR NO KEY UPDATE OF job SKIP LOCKED
), reclaimed AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN gives_up THEN 'failed' ELSE 'queued' END,
           dead_letter = gives_up, failed_at = CASE WHEN gives_up THEN now() END, retry_after = NULL,
           error_code = CASE WHEN gives_up THEN 'UNKNOWN' END,
           error_message = CASE WHEN gives_up
               THEN 'the worker was lost during each of ' || attempt || ' attempts' END,
           leased_by = NULL, lease_expires_at = NULL
      FROM lost
     WHERE job.id = lost.id AND job.status = 'processing' AND job.leased_by = lost.holder
    RETURNING job.id, lost.attempt, lost.holder, lost.reason, job.status, job.error_code, job.error_message
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, CASE status WHEN 'queued' THEN 'reclaimed' ELSE status END,
           jsonb_strip_nulls(jsonb_build_object(
               'worker', holder, 'attempt', attempt, 'reason', reason,
               'error_code', error_code, 'error_message', error_message))
      FROM reclaimed
)
SELECT id, attempt, holder, status, reason, error_code, error_message FROM reclaimed
