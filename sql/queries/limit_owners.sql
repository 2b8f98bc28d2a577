-- limit_owners: queued -> queued, takes jobs of owners who are at their limit out of the claim's index
-- So many of each priority of a route stay in it that a claim reads few of them, at most 500 are moved. A
-- locked row is left out: it is being claimed.
-- Parameters: window (jobs that stay), slack (so many more are left alone)
-- Rows: one: moved (jobs)
WITH RECURSIVE at_cap AS MATERIALIZED (
    SELECT unnest({schema}.owners_at_cap(owner_max_running)) AS owner
      FROM {schema}.fair_share WHERE owner_max_running > 0
), claimable (owner, route, priority) AS (
    (SELECT owner, next.route, next.priority
       FROM at_cap, LATERAL (
            SELECT route, -priority::bigint AS priority FROM {schema}.jobs
             WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0
               AND coalesce(owner_session_id, '') = owner
             ORDER BY route, -jobs.priority::bigint LIMIT 1) AS next)
    UNION ALL
    SELECT owner, next.route, next.priority
      FROM claimable, LATERAL (
           SELECT route, -priority::bigint AS priority FROM {schema}.jobs
            WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0
              AND coalesce(owner_session_id, '') = owner
              AND (route, -jobs.priority::bigint) > (claimable.route, claimable.priority)
            ORDER BY route, -jobs.priority::bigint LIMIT 1) AS next
), beyond AS MATERIALIZED (
    SELECT job.id
      FROM claimable, LATERAL (
           SELECT id, row_number() OVER (ORDER BY turn, created_at, id) AS place, count(*) OVER () AS number
             FROM (SELECT id, turn, created_at FROM {schema}.jobs
                    WHERE status = 'queued' AND retry_after IS NULL AND turn <> 0
                      AND coalesce(owner_session_id, '') = claimable.owner AND route = claimable.route
                      AND -jobs.priority::bigint = claimable.priority
                    ORDER BY turn, created_at, id LIMIT %(window)s + 500) AS first) AS job
     WHERE job.number > %(window)s + %(slack)s AND job.place > %(window)s LIMIT 500
), found AS MATERIALIZED (
    SELECT job.id FROM beyond JOIN {schema}.jobs AS job ON job.id = beyond.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
), moved AS (
    UPDATE {schema}.jobs AS job SET over_cap = true, retry_after = '9999-01-01 00:00+00' FROM found
     WHERE job.id = found.id AND job.leased_by IS NULL AND job.retry_after IS NULL
    RETURNING job.id
)
SELECT count(*) AS moved FROM moved
