-- supports code from: 6
-- outside a transaction
--
-- What cannot be done while workers wait: validating the checks of 0008, and the indexes of cancelled jobs.
--
-- An index stores its predicate as a call of is_terminal(), and every session reads the function's body
-- when it opens the index for the first time. So after 0008 the planner takes the old index for one of
-- cancelled jobs too, while sessions that have opened it before do not add them. It cannot be repaired by
-- entries that come later: another index with another name replaces it.

ALTER TABLE {schema}.jobs VALIDATE CONSTRAINT status_is_known;
ALTER TABLE {schema}.job_events VALIDATE CONSTRAINT event_type_is_known;

-- Cleanup of source files: the same as jobs_with_a_source_to_remove, with the time of a cancel.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_with_a_source_to_expire
    ON {schema}.jobs (greatest(completed_at, failed_at, cancelled_at, created_at), id)
    WHERE upload_path IS NOT NULL AND {schema}.is_terminal(status);
DROP INDEX CONCURRENTLY IF EXISTS {schema}.jobs_with_a_source_to_remove;
-- The charts count the jobs that were cancelled in the last hour. Only cancelled jobs are in it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_cancelled ON {schema}.jobs (cancelled_at)
    WHERE cancelled_at IS NOT NULL;
