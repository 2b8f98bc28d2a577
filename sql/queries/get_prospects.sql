-- get_prospects: what a job depends on now: breaker, servers, its holder's server, jobs before it
-- A supervisor that was killed cannot report it: it is counted no more when it is silent. Those before it
-- in the claim's order are counted up to a bound, in that order: so many are read of jobs_claimable,
-- however long the queue is.
-- Parameters: id, heartbeat_timeout (s), hostname (of the caller), at_most (jobs counted)
-- Rows: one, or none: breaker, by_hand, opened_at, probe_after, active_servers, active_here, holder_status
--   and holder_silent (s) of a holder that is registered, goes_first (jobs)
SELECT breaker.state AS breaker, breaker.by_hand, breaker.opened_at, breaker.probe_after,
       active.everywhere AS active_servers, active.here AS active_here,
       holder.status AS holder_status,
       extract(epoch FROM now() - holder.last_heartbeat_at)::double precision AS holder_silent,
       (SELECT count(*)
          FROM (SELECT FROM {schema}.jobs AS other
                 WHERE status = 'queued' AND retry_after IS NULL AND route = job.route
                   AND ({claim_order}) < (-job.priority::bigint, job.turn, job.created_at, job.id)
                 ORDER BY {claim_order}
                 LIMIT %(at_most)s) AS counted) AS goes_first
  FROM {schema}.jobs AS job CROSS JOIN {schema}.circuit_breaker AS breaker
 CROSS JOIN (SELECT count(*) AS everywhere, count(*) FILTER (WHERE hostname = %(hostname)s) AS here
               FROM {schema}.servers
              WHERE status = 'active'
                AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active
  LEFT JOIN {schema}.servers AS holder ON holder.id = regexp_replace(job.leased_by, '/[^/]*$', '')
 WHERE job.id = %(id)s
