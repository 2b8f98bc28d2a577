-- promote_due_jobs: queued -> queued, lets jobs whose retry is due into the claim's index
-- Rows whose time has not come stay outside it, so that a claim costs the same with 300,000 of them. So few at a time
-- that looking each one up is always cheaper to the planner than reading the whole queue.
-- Parameters: (none)
-- Rows: one per job let in
WITH due AS MATERIALIZED (
    SELECT id FROM {schema}.jobs
     WHERE status = 'queued' AND retry_after <= now()
     ORDER BY retry_after
     LIMIT 100 FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.jobs AS job SET retry_after = NULL
  FROM due
 WHERE job.id = due.id AND job.leased_by IS NULL  -- still queued; by status the planner might read all that are
RETURNING job.id
