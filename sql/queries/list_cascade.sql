-- list_cascade: the unfinished jobs that wait for these jobs, directly or through others
-- Parameters: ids
-- Rows: one per job: id
WITH RECURSIVE waiting (id) AS (
    SELECT dependency.job_id FROM {schema}.job_dependencies AS dependency
     WHERE dependency.depends_on = ANY (%(ids)s::uuid[])
    UNION
    SELECT dependency.job_id
      FROM {schema}.job_dependencies AS dependency JOIN waiting ON waiting.id = dependency.depends_on
)
SELECT job.id FROM waiting JOIN {schema}.jobs AS job USING (id)
 WHERE {schema}.is_active(job.status)
 ORDER BY job.created_at, job.id
