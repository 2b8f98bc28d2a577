-- resume_jobs: queued -> queued, lets jobs into the claim's index whose owner is not paused any more: a slice
-- The owners that have paused jobs are read from the index one by one, so that 300,000 jobs of an owner who
-- stays paused cost one lookup. guard_job decides again: another pause may be in force. The slice begins at a
-- key, because moved jobs leave dead entries before it, which stay while a session holds an old snapshot.
-- Parameters: route, owner, created_at (the key)
-- Rows: one: moved (jobs, at most 500), and the last key of the slice; null keys when there are no more
WITH RECURSIVE paused (route, owner, created_at) AS (
    (SELECT route, owner_session_id, created_at FROM {schema}.jobs
      WHERE paused AND (route, owner_session_id, created_at)
                       >= (%(route)s, %(owner)s, %(created_at)s::timestamptz)
      ORDER BY route, owner_session_id, created_at LIMIT 1)
    UNION ALL
    SELECT next.route, next.owner_session_id, next.created_at
      FROM paused, LATERAL (
           SELECT route, owner_session_id, created_at FROM {schema}.jobs
            WHERE jobs.paused AND (route, owner_session_id) > (paused.route, paused.owner)
            ORDER BY route, owner_session_id, created_at LIMIT 1) AS next
), ended AS MATERIALIZED (
    SELECT route, owner, created_at FROM paused
     WHERE NOT EXISTS (SELECT FROM {schema}.pauses AS pause
                        WHERE pause.owner = paused.owner
                          AND (gateway IS NULL OR gateway = paused.route))
), slice AS MATERIALIZED (
    SELECT job.id, job.route, job.owner, job.created_at
      FROM ended, LATERAL (
           SELECT id, route, owner_session_id AS owner, created_at FROM {schema}.jobs
            WHERE paused AND route = ended.route AND owner_session_id = ended.owner
              AND created_at >= ended.created_at
            ORDER BY route, owner_session_id, created_at LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED) AS job
     LIMIT 500
), moved AS (
    UPDATE {schema}.jobs AS job SET paused = false, retry_after = NULL
      FROM slice
     WHERE job.id = slice.id  -- by `paused` the planner might read all that are
    RETURNING job.id
)
SELECT (SELECT count(*) FROM moved) AS moved, last.route, last.owner, last.created_at::text AS created_at
  FROM (SELECT) AS always
  LEFT JOIN (SELECT * FROM slice ORDER BY route DESC, owner DESC, created_at DESC LIMIT 1) AS last
    ON (SELECT count(*) FROM slice) = 500
