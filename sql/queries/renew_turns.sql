-- renew_turns: queued -> queued, gives claimable jobs a turn as the setting in force wants it, at most 500
-- Oldest first, so that older jobs of an owner get earlier turns. guard_job gives the turn; jobs outside the
-- claim's index get theirs when they become claimable. A job that is locked is being claimed.
-- Parameters: first, last (turns that are out of date)
-- Rows: one: found (jobs with such a turn), renewed, and as `oldest` the oldest transaction that was running:
--   a job of a later one has the right turn
WITH RECURSIVE claimable (route, priority) AS (
    (SELECT route, -priority::bigint FROM {schema}.jobs
      WHERE status = 'queued' AND retry_after IS NULL ORDER BY route, -priority::bigint LIMIT 1)
    UNION ALL
    SELECT next.route, next.priority
      FROM claimable, LATERAL (
           SELECT route, -priority::bigint AS priority FROM {schema}.jobs AS job
            WHERE status = 'queued' AND retry_after IS NULL
              AND (route, -job.priority::bigint) > (claimable.route, claimable.priority)
            ORDER BY route, -job.priority::bigint LIMIT 1) AS next
), stale AS MATERIALIZED (
    SELECT job.id
      FROM claimable, LATERAL (
           SELECT id FROM {schema}.jobs AS job
            WHERE status = 'queued' AND retry_after IS NULL AND route = claimable.route
              AND -job.priority::bigint = claimable.priority
              AND turn >= %(first)s AND turn <= %(last)s
            ORDER BY turn, created_at, id LIMIT 500) AS job
     LIMIT 500
), found AS MATERIALIZED (
    SELECT job.id FROM stale JOIN {schema}.jobs AS job ON job.id = stale.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
), renewed AS (
    UPDATE {schema}.jobs AS job SET turn = 0 FROM found
     WHERE job.id = found.id AND job.leased_by IS NULL
    RETURNING job.id
)
SELECT (SELECT count(*) FROM stale) AS found, (SELECT count(*) FROM renewed) AS renewed,
       pg_snapshot_xmin(pg_current_snapshot())::text AS oldest
