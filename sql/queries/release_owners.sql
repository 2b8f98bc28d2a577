-- release_owners: queued -> queued, lets jobs into the claim's index that limit_owners has taken out of it
-- Of each owner, priority and route so many that `window` are claimable, the oldest first, at most 500 in
-- all; without a limit, any. guard_job decides again: the owner may be paused.
-- Parameters: window (jobs)
-- Rows: one: moved (jobs)
WITH RECURSIVE waiting (owner, route, priority) AS (
    (SELECT coalesce(owner_session_id, ''), route, -priority::bigint FROM {schema}.jobs
      WHERE over_cap ORDER BY coalesce(owner_session_id, ''), route, -priority::bigint LIMIT 1)
    UNION ALL
    SELECT next.owner, next.route, next.priority
      FROM waiting, LATERAL (
           SELECT coalesce(owner_session_id, '') AS owner, route, -jobs.priority::bigint AS priority
             FROM {schema}.jobs
            WHERE over_cap AND (coalesce(owner_session_id, ''), route, -jobs.priority::bigint)
                             > (waiting.owner, waiting.route, waiting.priority)
            ORDER BY coalesce(owner_session_id, ''), route, -jobs.priority::bigint LIMIT 1) AS next
), room AS MATERIALIZED (
    SELECT owner, route, priority, CASE share.owner_max_running WHEN 0 THEN 500 ELSE %(window)s - (
               SELECT count(*)
                 FROM (SELECT FROM {schema}.jobs
                        WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0
                          AND coalesce(owner_session_id, '') = waiting.owner AND route = waiting.route
                          AND -jobs.priority::bigint = waiting.priority
                        LIMIT %(window)s) AS claimable) END AS number
      FROM waiting, {schema}.fair_share AS share
), found AS MATERIALIZED (
    SELECT job.id
      FROM room, LATERAL (
           SELECT id FROM {schema}.jobs
            WHERE over_cap AND coalesce(owner_session_id, '') = room.owner AND route = room.route
              AND -jobs.priority::bigint = room.priority
            ORDER BY created_at, id LIMIT room.number FOR NO KEY UPDATE SKIP LOCKED) AS job
     LIMIT 500
), moved AS (
    UPDATE {schema}.jobs AS job SET over_cap = false, retry_after = NULL FROM found
     WHERE job.id = found.id
    RETURNING job.id
)
SELECT count(*) AS moved FROM moved
