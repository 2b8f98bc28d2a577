-- list_needed_jobs: what a job waits for: the jobs that it depends on and that are not complete
-- Parameters: id
-- Rows: one per job: id, status
SELECT needed.id, needed.status
  FROM {schema}.job_dependencies AS dependency
    JOIN {schema}.jobs AS needed ON needed.id = dependency.depends_on
 WHERE dependency.job_id = %(id)s AND needed.status <> 'complete'
 ORDER BY needed.created_at, needed.id
