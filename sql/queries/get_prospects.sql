-- get_prospects: what a job depends on now: its gateway's breaker and limit, servers, its holder, a pause
-- A supervisor that was killed cannot report it: it is counted no more when it is silent.
-- Parameters: id, heartbeat_timeout (s), hostname (of the caller)
-- Rows: one, or none: breaker, by_hand, opened_at, probe_after; of the gateway's limit max_calls (null: no
--   limit), running_calls and the columns of list_breakers; active_servers, active_here, holder_status and
--   holder_silent (s) of a holder that is registered, and of the pause that keeps it waiting
--   paused_gateway, paused_owner, paused_by, paused_at; takes_turns, owner_max_running (0: no limit)
--   and is_limited (its owner has so many running jobs)
SELECT coalesce(breaker.state, 'closed') AS breaker, coalesce(breaker.by_hand, false) AS by_hand,
       breaker.opened_at, breaker.probe_after, breaker.max_calls,
       (SELECT count(*) FROM {schema}.gateway_slots AS slot
         WHERE slot.gateway = job.route AND slot.holder IS NOT NULL) AS running_calls,
       adaptive.most_calls, adaptive.reason, adaptive.reason_since, adaptive.state AS limit_state,
       extract(epoch FROM now() - adaptive.reason_since)::double precision AS reason_seconds,
       active.everywhere AS active_servers, active.here AS active_here,
       pause.gateway AS paused_gateway, pause.owner AS paused_owner, pause.by AS paused_by,
       pause.at AS paused_at, holder.status AS holder_status, share.takes_turns, share.owner_max_running,
       job.status = 'queued' AND (job.over_cap OR {schema}.owner_is_at_cap(job.owner_session_id))
           AS is_limited,
       extract(epoch FROM now() - holder.last_heartbeat_at)::double precision AS holder_silent
  FROM {schema}.jobs AS job LEFT JOIN {schema}.circuit_breaker AS breaker ON breaker.gateway = job.route
  LEFT JOIN {schema}.gateway_limits AS adaptive ON adaptive.gateway = job.route
 CROSS JOIN {schema}.fair_share AS share
 CROSS JOIN (SELECT count(*) AS everywhere, count(*) FILTER (WHERE hostname = %(hostname)s) AS here
               FROM {schema}.servers
              WHERE status = 'active'
                AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active
  LEFT JOIN {schema}.servers AS holder ON holder.id = regexp_replace(job.leased_by, '/[^/]*$', '')
  LEFT JOIN LATERAL (SELECT * FROM {schema}.pauses
                      WHERE (gateway IS NULL OR gateway = job.route)
                        AND (owner IS NULL OR owner = job.owner_session_id)
                      ORDER BY at LIMIT 1) AS pause ON true
 WHERE job.id = %(id)s
