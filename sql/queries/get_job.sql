-- get_job: everything about one job
-- retry_after is that of list_session_jobs.
-- Parameters: id
-- Rows: one, or none
SELECT job.*, now() AS now,
       CASE WHEN NOT (job.paused OR job.over_cap) THEN job.retry_after END AS retry_after,
       (SELECT to_jsonb(progress) - 'job_id' FROM {schema}.job_progress AS progress
           WHERE progress.job_id = job.id) AS progress,
       ARRAY(SELECT dependency.depends_on FROM {schema}.job_dependencies AS dependency
               JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
              WHERE dependency.job_id = job.id AND needed.status <> 'complete') AS waits_for
  FROM {schema}.jobs AS job
 WHERE job.id = %(id)s
