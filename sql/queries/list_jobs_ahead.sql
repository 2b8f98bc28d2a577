-- list_jobs_ahead: what is claimed before these jobs, by kind, and what their estimates depend on
-- All routes are read in the claim's order, each up to a bound, and not behind the last of these jobs. The
-- jobs divide that order into segments: before the first, between the first and the second, and so on. A job
-- that is not queued has the place that it would have.
-- Parameters: ids, routes (whose jobs are claimed now), at_most (jobs read of each route)
-- Rows: in the claim's order: segment, route, mapping, size_class, number (of jobs); a row with an id is one
--   of the jobs and ends its segment: it also has status, retry_after, last_attempt_at, is_paused (its
--   owner), now
WITH wanted AS MATERIALIZED (
    SELECT id, route, mapping, bytes, priority, turn, created_at, status, last_attempt_at,
           CASE WHEN paused OR over_cap THEN 'infinity' ELSE retry_after END AS retry_after,
           coalesce((SELECT true FROM {schema}.pauses
                      WHERE owner = job.owner_session_id AND (gateway IS NULL OR gateway = job.route)
                      LIMIT 1), false) AS is_paused
      FROM {schema}.jobs AS job WHERE id = ANY (%(ids)s::uuid[])
), last AS MATERIALIZED (
    SELECT -priority::bigint AS first, turn, created_at, id FROM wanted
     ORDER BY -priority::bigint DESC, turn DESC, created_at DESC, id DESC LIMIT 1
), entry AS (
    SELECT ahead.*, false AS is_wanted
      FROM last CROSS JOIN unnest(%(routes)s::text[]) AS open (name)
     CROSS JOIN LATERAL (
           SELECT id, route, mapping, bytes, priority, turn, created_at FROM {schema}.jobs
            WHERE status = 'queued' AND retry_after IS NULL AND route = open.name
              AND ({claim_order}) < (last.first, last.turn, last.created_at, last.id)
            ORDER BY {claim_order} LIMIT %(at_most)s) AS ahead
    UNION ALL
    SELECT id, route, mapping, bytes, priority, turn, created_at, true FROM wanted
), placed AS (
    SELECT *, count(*) FILTER (WHERE is_wanted) OVER (ORDER BY {claim_order}, is_wanted DESC)
              - is_wanted::int AS segment
      FROM entry
), grouped AS (
    SELECT segment, route, mapping, {schema}.size_class(bytes) AS size_class,
           CASE WHEN is_wanted THEN id END AS id, count(*) AS number
      FROM placed GROUP BY 1, 2, 3, 4, 5
)
SELECT grouped.*, status, retry_after, last_attempt_at, is_paused, now() AS now
  FROM grouped LEFT JOIN (SELECT id AS wanted_id, status, retry_after, last_attempt_at, is_paused FROM wanted)
       AS job ON wanted_id = grouped.id
 ORDER BY segment, grouped.id NULLS FIRST
