-- find_leased_jobs: what the table says that this worker leases; reads nothing that could not be loaded
-- Parameters: holder
-- Rows: one per job: id, attempt, run
SELECT id, attempt_count AS attempt, run
  FROM {schema}.jobs WHERE status = 'processing' AND leased_by = %(holder)s
