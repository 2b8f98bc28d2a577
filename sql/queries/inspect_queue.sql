-- inspect_queue: what distinguishes a queue that works from one that stands still
-- The first in the claim's order has waited longest for a worker; when the newest events show a claim, it
-- is a backlog. A job whose retry_after is infinity is parked; in the year 9999, its owner is paused or has
-- too many running jobs. Nobody waits for these.
-- breakers lists each that is not closed. Jobs of a gateway that is paused, or whose breaker is not closed,
-- wait for that.
-- Parameters: gateways (their names), heartbeat_timeout, longest_wait (s)
-- Rows: one
WITH breaker AS MATERIALIZED (
    SELECT gateway, state, by_hand, opened_at FROM {schema}.circuit_breaker
     WHERE gateway = ANY (%(gateways)s::text[])
)
SELECT now() AS now,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'gateway', gateway, 'state', state, 'by_hand', by_hand,
                   'seconds', extract(epoch FROM now() - opened_at)) ORDER BY gateway), '[]')
          FROM breaker WHERE state <> 'closed') AS breakers,
       (SELECT count(*) FROM {schema}.jobs WHERE status = 'processing' AND lease_expires_at < now())
           AS expired_leases,
       (SELECT max(extract(epoch FROM now() - first.since))
          FROM breaker CROSS JOIN LATERAL (
               SELECT CASE WHEN last_attempt_at >= queued_at THEN updated_at ELSE queued_at END AS since
                 FROM {schema}.jobs WHERE status = 'queued' AND retry_after IS NULL AND route = gateway
                ORDER BY {claim_order} LIMIT 1) AS first
         WHERE state = 'closed'
           AND NOT EXISTS (
               SELECT FROM {schema}.pauses
                WHERE owner IS NULL AND coalesce(pauses.gateway, breaker.gateway) = breaker.gateway)
       )::double precision AS first_waits,
       (SELECT count(*)
          FROM (SELECT FROM {schema}.jobs
                 WHERE status = 'queued' AND coalesce(retry_after < '9999-01-01 00:00+00', true)
                 LIMIT 10000) AS counted) AS queued,
       (SELECT count(*)
          FROM (SELECT FROM {schema}.jobs
                 WHERE status = 'queued' AND retry_after >= '9999-01-01 00:00+00'
                 LIMIT 10000) AS counted) AS parked,
       EXISTS (SELECT FROM (SELECT event_type, at FROM {schema}.job_events
                             ORDER BY id DESC LIMIT 1000) AS newest
                WHERE event_type = 'processing' AND at > now() - make_interval(secs => %(longest_wait)s))
                    AS claims_go_on,
       (SELECT count(*) FROM {schema}.pauses) AS pauses,
       (SELECT min(at) FROM {schema}.pauses) AS paused_at,
       servers.*
  FROM (SELECT count(*) FILTER (WHERE is_running AND NOT is_silent AND status = 'active') AS active_servers,
               count(*) FILTER (WHERE is_running AND is_silent) AS silent_servers,
               count(*) FILTER (WHERE status = 'dead' AND stopped_at > now() - interval '1 day')
                   AS dead_servers
          FROM (SELECT status, stopped_at, status IN ('active', 'draining') AS is_running,
                       last_heartbeat_at < now() - make_interval(secs => %(heartbeat_timeout)s) AS is_silent
                  FROM {schema}.servers) AS server) AS servers
