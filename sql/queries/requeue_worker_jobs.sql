-- requeue_worker_jobs: processing -> queued, the jobs of a dead worker; or failed, without attempts left
-- The attempt stays counted, so that a job which kills its worker ends as a dead letter. It is not counted
-- for a worker that a shutdown stopped in the middle of its job, for a claim whose answer never arrived, and
-- for a job that was claimed ahead and not begun.
-- begun: the jobs whose attempt had begun (null: all); the reason of the others says that they had not.
-- kept: the jobs that a living worker knows of, and keeps.
-- Parameters: holder, max_attempts, counted, begun (uuid[]), reason, kept (uuid[])
-- Rows: one per job: id, attempt, status, error_code, error_message, reason
WITH held AS MATERIALIZED (
    SELECT id, attempt_count AS attempt,
           %(counted)s AND (%(begun)s::uuid[] IS NULL OR id = ANY (%(begun)s::uuid[])) AS counts
      FROM {schema}.jobs
     WHERE status = 'processing' AND leased_by = %(holder)s AND id <> ALL (%(kept)s::uuid[])
       FOR NO KEY UPDATE
), judged AS MATERIALIZED (
    SELECT id, attempt, counts, counts AND attempt >= %(max_attempts)s AS gives_up,
           %(reason)s::text || CASE WHEN counts <> %(counted)s THEN ', not begun' ELSE '' END AS reason
      FROM held
), returned AS (
    UPDATE {schema}.jobs AS job
       SET status = CASE WHEN gives_up THEN 'failed' ELSE 'queued' END,
           attempt_count = CASE WHEN counts THEN attempt_count ELSE attempt_count - 1 END,
           dead_letter = gives_up, failed_at = CASE WHEN gives_up THEN now() END, retry_after = NULL,
           error_code = CASE WHEN gives_up THEN 'UNKNOWN' END,
           error_message = CASE WHEN gives_up
               THEN 'the worker died during each of ' || attempt || ' attempts' END,
           leased_by = NULL, lease_expires_at = NULL
      FROM judged
     WHERE job.id = judged.id AND job.status = 'processing' AND job.leased_by = %(holder)s
    RETURNING job.id, judged.attempt, job.status, job.error_code, job.error_message, judged.reason
), event AS (
    INSERT INTO {schema}.job_events (job_id, event_type, meta)
    SELECT id, CASE status WHEN 'queued' THEN 'requeued' ELSE status END,
           jsonb_strip_nulls(jsonb_build_object(
               'worker', %(holder)s::text, 'attempt', attempt, 'reason', reason,
               'error_code', error_code, 'error_message', error_message))
      FROM returned
)
SELECT id, attempt, status, error_code, error_message, reason FROM returned
