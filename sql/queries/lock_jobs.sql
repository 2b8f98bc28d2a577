-- lock_jobs: these jobs, in any state, before their removal; one that is locked now is left out
-- A completion that holds one of them may wait for another one: who removes jobs never waits, and asks again.
-- Parameters: ids
-- Rows: one per job that was locked: id, at (its last change), attempt, holder
SELECT id, updated_at AS at, attempt_count AS attempt, leased_by AS holder
  FROM {schema}.jobs WHERE id = ANY (%(ids)s::uuid[]) FOR UPDATE SKIP LOCKED
