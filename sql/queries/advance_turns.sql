-- advance_turns: moves the virtual time of each priority of a route to its first queued job
-- Priorities that have none yet are looked for now and then: the search reads the dead entries before their
-- first jobs. positions: the last turns that this host has claimed, where it has recorded them.
-- Parameters: finds_new, positions (JSON array: route, priority, turn)
-- Rows: one per priority of a route whose virtual time has moved: route, priority, turn
WITH RECURSIVE claimable (route, priority) AS (
    (SELECT route, -priority::bigint FROM {schema}.jobs
      WHERE status = 'queued' AND retry_after IS NULL AND %(finds_new)s
      ORDER BY route, -priority::bigint LIMIT 1)
    UNION ALL
    SELECT next.route, next.priority
      FROM claimable, LATERAL (
           SELECT route, -priority::bigint AS priority FROM {schema}.jobs AS job
            WHERE status = 'queued' AND retry_after IS NULL
              AND (route, -job.priority::bigint) > (claimable.route, claimable.priority)
            ORDER BY route, -job.priority::bigint LIMIT 1) AS next
), known AS MATERIALIZED (
    SELECT route, priority, max(turn) AS turn, max(turn) FILTER (WHERE is_kept) AS kept
      FROM (SELECT route, priority, turn, true AS is_kept FROM {schema}.turns
            UNION ALL SELECT route, priority, -4611686018427387904, false FROM claimable
            UNION ALL SELECT route, priority, turn, false
                        FROM jsonb_to_recordset(%(positions)s::jsonb) AS given (
                                 route text, priority bigint, turn bigint)) AS each
     GROUP BY route, priority
), present AS MATERIALIZED (
    SELECT route, priority, kept, coalesce((
               SELECT job.turn FROM {schema}.jobs AS job
                WHERE job.status = 'queued' AND job.retry_after IS NULL AND job.route = known.route
                  AND -job.priority::bigint = known.priority AND job.turn >= known.turn AND job.turn < -1
                ORDER BY job.turn, job.created_at, job.id LIMIT 1), known.turn) AS turn
      FROM known
)
INSERT INTO {schema}.turns AS kept (route, priority, turn)
SELECT route, priority, turn FROM present WHERE turn IS DISTINCT FROM kept ORDER BY route, priority
ON CONFLICT (route, priority) DO UPDATE SET turn = excluded.turn WHERE kept.turn < excluded.turn
RETURNING route, priority, turn
