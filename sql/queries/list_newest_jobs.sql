-- list_newest_jobs: the newest in one status that must have their file; a complete one whose result has expired need not
-- Parameters: status, limit
-- Rows: one per job: id
SELECT id
  FROM (SELECT id, result_path FROM {schema}.jobs WHERE status = %(status)s ORDER BY created_at DESC LIMIT %(limit)s) AS newest
 WHERE %(status)s <> 'complete' OR result_path IS NOT NULL
