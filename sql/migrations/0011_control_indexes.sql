-- supports code from: 6
-- outside a transaction
--
-- Indexes of the file before. A job without a deadline whose owner is not paused is in none of them.

-- expire_jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_with_a_deadline ON {schema}.jobs (deadline)
    WHERE deadline IS NOT NULL AND status IN ('uploaded', 'queued');
-- resume_jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_paused ON {schema}.jobs (route, owner_session_id, created_at)
    WHERE paused;
