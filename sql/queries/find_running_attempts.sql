-- find_running_attempts: which of these jobs are being converted, by whom and in which attempt
-- A temporary file of any other attempt belongs to a worker that died.
-- Parameters: ids
-- Rows: one per job that is being converted: id, holder, attempt
SELECT id, leased_by AS holder, attempt_count AS attempt
  FROM {schema}.jobs
 WHERE status = 'processing' AND id = ANY (%(ids)s::uuid[])
