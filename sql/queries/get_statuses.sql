-- get_statuses: where each of these jobs is, for a caller that waits
-- Parameters: ids
-- Rows: one per job that exists
SELECT job.id, job.status, job.run, job.error_code, job.error_message, progress.percent, progress.step
  FROM {schema}.jobs AS job LEFT JOIN {schema}.job_progress AS progress ON progress.job_id = job.id
 WHERE job.id = ANY (%(ids)s::uuid[])
