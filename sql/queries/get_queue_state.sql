-- get_queue_state: what can keep a queued job from being claimed: the breaker, or that nobody works
-- A supervisor that was killed cannot report it: it is counted no more when it is silent.
-- Parameters: heartbeat_timeout (s)
-- Rows: one: breaker, by_hand, opened_at, probe_after, active_servers
SELECT state AS breaker, by_hand, opened_at, probe_after,
       (SELECT count(*) FROM {schema}.servers
         WHERE status = 'active'
           AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)) AS active_servers
  FROM {schema}.circuit_breaker
