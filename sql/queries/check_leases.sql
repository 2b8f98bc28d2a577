-- check_leases: which of the jobs that a worker has claimed it no longer leases, and where they are now
-- By primary key, and without a condition on status: see "The fence" in docs/architecture.md.
-- Parameters: holder, ids, attempts, runs (of the same length)
-- Rows: one per job that is lost: id, status (null: the row is gone)
SELECT mine.id, job.status
  FROM unnest(%(ids)s::uuid[], %(attempts)s::int[], %(runs)s::int[]) AS mine (id, attempt, run)
  LEFT JOIN {schema}.jobs AS job ON job.id = mine.id
 WHERE (job.leased_by, job.attempt_count, job.run) IS DISTINCT FROM (%(holder)s::text, mine.attempt, mine.run)
