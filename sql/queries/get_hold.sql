-- get_hold: what can keep a queued job from being claimed: the breaker, or that nobody works
-- Parameters: (none)
-- Rows: one: breaker, by_hand, opened_at, probe_after, active_servers
SELECT state AS breaker, by_hand, opened_at, probe_after,
       (SELECT count(*) FROM {schema}.servers WHERE status = 'active') AS active_servers
  FROM {schema}.circuit_breaker
