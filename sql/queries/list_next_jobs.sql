-- list_next_jobs: the first of the queue, in the claim's order
-- Parameters: limit
-- Rows: one per job: id
SELECT id
  FROM {schema}.jobs
 WHERE status = 'queued' AND retry_after IS NULL
 ORDER BY route, {claim_order}
 LIMIT %(limit)s
