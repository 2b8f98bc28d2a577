-- get_queue_state: what can keep queued jobs from being claimed: a breaker, or that nobody works
-- A supervisor that was killed cannot report it: it is counted no more when it is silent. breaker, by_hand,
-- opened_at and probe_after are those of the gateway that is worst off, among these.
-- Parameters: gateways (their names), heartbeat_timeout (s)
-- Rows: one: breaker, by_hand, opened_at, probe_after, gateways (the state of each by its name),
--   active_servers
WITH breakers AS MATERIALIZED (
    SELECT gateway, state, by_hand, opened_at, probe_after FROM {schema}.circuit_breaker
     WHERE gateway = ANY (%(gateways)s::text[])
)
SELECT coalesce(worst.state, 'closed') AS breaker, coalesce(worst.by_hand, false) AS by_hand, worst.opened_at,
       worst.probe_after,
       (SELECT json_object_agg(name, coalesce(state, 'closed') ORDER BY place)
          FROM unnest(%(gateways)s::text[]) WITH ORDINALITY AS given (name, place)
          LEFT JOIN breakers ON gateway = name) AS gateways,
       (SELECT count(*) FROM {schema}.servers
         WHERE status = 'active'
           AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active_servers
  FROM (SELECT) AS one
  LEFT JOIN (SELECT * FROM breakers
              ORDER BY array_position(ARRAY['open', 'half_open', 'closed'], state), by_hand DESC, opened_at,
                       gateway
              LIMIT 1) AS worst ON true
