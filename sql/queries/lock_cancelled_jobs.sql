-- lock_cancelled_jobs: which of these jobs are cancelled; nobody starts them over until the transaction ends
-- What an attempt has left of a result is removed under this lock: a later run may publish its own.
-- Parameters: ids
-- Rows: one per job: id
SELECT id FROM {schema}.jobs
 WHERE id = ANY (%(ids)s::uuid[]) AND status = 'cancelled'
 ORDER BY id FOR NO KEY UPDATE
