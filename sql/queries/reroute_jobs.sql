-- reroute_jobs: queued -> queued, gives jobs the route of the gateway that converts their mapping now
-- One page of the claim's index, so that a long queue is moved in short transactions. Jobs that wait for a
-- retry, and running ones, get their route when they become claimable (guard_job). A job that is locked is
-- being claimed; the next pass sees it again if it was not.
-- Parameters: after_route, after_priority, after_turn, after_created_at, after_id, page (jobs)
-- Rows: one: jobs (read), stale (of them with another route), the key of the last one, and as `oldest` the
--   oldest transaction that was running: a job of a later one has the right route
WITH page AS MATERIALIZED (
    SELECT id, route, -priority::bigint AS priority, turn, created_at, {schema}.route_of(mapping) AS target,
           row_number() OVER () AS place
      FROM (SELECT id, route, priority, turn, created_at, mapping FROM {schema}.jobs
             WHERE status = 'queued' AND retry_after IS NULL
               AND (route, {claim_order}) > (%(after_route)s, %(after_priority)s, %(after_turn)s,
                                             %(after_created_at)s::timestamptz, %(after_id)s)
             ORDER BY route, {claim_order} LIMIT %(page)s) AS claimable
), stale AS MATERIALIZED (
    SELECT job.id, page.target FROM page JOIN {schema}.jobs AS job ON job.id = page.id
     WHERE page.route <> page.target FOR NO KEY UPDATE OF job SKIP LOCKED
), moved AS (
    UPDATE {schema}.jobs AS job SET route = stale.target FROM stale
     WHERE job.id = stale.id AND job.leased_by IS NULL
)
SELECT (SELECT count(*) FROM page) AS jobs, (SELECT count(*) FROM page WHERE route <> target) AS stale,
       pg_snapshot_xmin(pg_current_snapshot())::text AS oldest, last.*
  FROM (SELECT) AS one
  LEFT JOIN (SELECT route, priority, turn, created_at::text AS created_at, id
               FROM page ORDER BY place DESC LIMIT 1) AS last ON true
