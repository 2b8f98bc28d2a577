-- pause_jobs: queued -> queued, takes jobs of paused owners out of the claim's index, in one slice of it
-- The update changes nothing itself: guard_job sets retry_after, as for a job that is queued
-- now. A locked row is left out: it is being claimed, and guard_job sees it when it is queued again.
-- Parameters: route, after_priority, after_turn, after_created_at, after_id (the slice begins after this
--   key), limit
-- Rows: one: moved (jobs), and the last key of the slice; null keys at the end of the index
WITH slice AS MATERIALIZED (
    SELECT id, owner_session_id, route, -priority::bigint AS priority, turn, created_at
      FROM {schema}.jobs
     WHERE status = 'queued' AND retry_after IS NULL
       AND (route, {claim_order}) > (%(route)s, %(after_priority)s, %(after_turn)s,
                                     %(after_created_at)s::timestamptz, %(after_id)s)
     ORDER BY route, {claim_order} LIMIT %(limit)s
), found AS MATERIALIZED (
    SELECT job.id
      FROM (SELECT id FROM slice
             WHERE EXISTS (SELECT FROM {schema}.pauses
                            WHERE owner = slice.owner_session_id
                              AND (gateway IS NULL OR gateway = slice.route)) LIMIT 1000) AS wanted
      JOIN {schema}.jobs AS job ON job.id = wanted.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
), moved AS (
    UPDATE {schema}.jobs AS job SET retry_after = NULL FROM found
     WHERE job.id = found.id AND job.leased_by IS NULL AND job.retry_after IS NULL
    RETURNING job.id
)
SELECT (SELECT count(*) FROM moved) AS moved, last.route, last.priority, last.turn,
       last.created_at::text AS created_at, last.id
  FROM (SELECT) AS always
  LEFT JOIN (SELECT * FROM slice ORDER BY route DESC, priority DESC, turn DESC, created_at DESC, id DESC
              LIMIT 1) AS last ON (SELECT count(*) FROM slice) = %(limit)s
