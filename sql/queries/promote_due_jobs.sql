-- promote_due_jobs: queued -> queued, lets jobs whose retry is due into the claim's index
-- Rows whose time has not come stay outside it, so that a claim costs the same with 300,000 of them. So few
-- at a time that looking each one up is always cheaper to the planner than reading the whole queue.
-- due_after: none that became due earlier is left, so that the entries of those that were let in are not
-- read again.
-- Parameters: due_after
-- Rows: one per job let in
WITH due AS MATERIALIZED (
    SELECT id FROM {schema}.jobs
     WHERE status = 'queued' AND retry_after <= now() AND retry_after >= %(due_after)s::timestamptz
     ORDER BY retry_after
     LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs AS job SET retry_after = NULL
  FROM due
 -- still queued; by status the planner might read all that are
 WHERE job.id = due.id AND job.leased_by IS NULL
RETURNING job.id
