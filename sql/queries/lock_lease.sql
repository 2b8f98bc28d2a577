-- lock_lease: processing -> processing, first statement of a transaction that publishes a result file
-- Until it ends nobody can reclaim the job, so a file put in place inside it is the holder's.
-- Parameters: id, holder, attempt, run
-- Rows: one, or none when the lease is lost
SELECT id FROM {schema}.jobs
 WHERE id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s AND run = %(run)s
   FOR NO KEY UPDATE
