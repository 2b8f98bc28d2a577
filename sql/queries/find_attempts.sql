-- find_attempts: which of these jobs run now, under whom; a temp file of any other attempt is a dead one's
-- Parameters: ids
-- Rows: one per running job: id, holder, attempt
SELECT id, leased_by AS holder, attempt_count AS attempt
  FROM {schema}.jobs
 WHERE status = 'processing' AND id = ANY (%(ids)s::uuid[])
