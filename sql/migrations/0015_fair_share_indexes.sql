-- supports code from: 6
-- outside a transaction
--
-- Indexes of the file before. Without fair share and without a limit no job is in them.

-- The last turn of an owner (next_turn), and how many jobs of an owner are claimable (limit_owners).
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_owner_and_turn ON {schema}.jobs (
        coalesce(owner_session_id, ''), route, (-priority::bigint), turn, created_at, id)
    WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0;
-- release_owners.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_over_cap ON {schema}.jobs (
        coalesce(owner_session_id, ''), route, (-priority::bigint), created_at, id)
    WHERE over_cap;
