-- list_running_jobs: what each worker does now
-- Parameters: (none)
-- Rows: one per job: server and slot (of its holder), id, attempt, seconds in this attempt, lease_seconds
--   left, progress
SELECT regexp_replace(job.leased_by, '/[^/]*$', '') AS server, regexp_replace(job.leased_by, '^.*/', '')
    AS slot,
       job.id, job.attempt_count AS attempt, job.bytes,
       extract(epoch FROM now() - job.last_attempt_at)::double precision AS seconds,
       extract(epoch FROM job.lease_expires_at - now())::double precision AS lease_seconds,
       progress.step, progress.percent
  FROM {schema}.jobs AS job LEFT JOIN {schema}.job_progress AS progress ON progress.job_id = job.id
 WHERE job.status = 'processing'
 ORDER BY 1, length(regexp_replace(job.leased_by, '^.*/', '')), 2
