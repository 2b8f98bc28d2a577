-- get_estimate_model: what estimates are made from: measured times, workers, limits, interruptions
-- A supervisor that was killed cannot report it: it is counted no more when it is silent. A server that
-- declares no gateway (of an earlier version) works for all of them.
-- Parameters: heartbeat_timeout (s)
-- Rows: one: services (rows of service_times), gateways (name, is_open, max_calls, workers, running),
--   workers, median_factor, late_factor, interruptions
WITH active AS MATERIALIZED (
    SELECT id, concurrency, gateways FROM {schema}.servers
     WHERE status = 'active' AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)
), running AS MATERIALIZED (
    SELECT route, count(*) AS number
      FROM (SELECT route FROM {schema}.jobs WHERE status = 'processing' LIMIT 1000) AS job GROUP BY route
)
SELECT coalesce((SELECT json_agg(service) FROM {schema}.service_times AS service), '[]') AS services,
       (SELECT json_agg(json_build_object(
                   'name', gateway, 'max_calls', max_calls,
                   'is_open', state = 'closed' AND NOT EXISTS (
                       SELECT FROM {schema}.pauses AS pause
                        WHERE owner IS NULL AND (pause.gateway IS NULL OR pause.gateway = breaker.gateway)),
                   'workers', (SELECT coalesce(sum(concurrency), 0) FROM active
                                WHERE gateways = '[]' OR gateways @> jsonb_build_array(
                                          jsonb_build_object('name', breaker.gateway))),
                   'running', coalesce((SELECT number FROM running WHERE route = gateway), 0)))
          FROM {schema}.circuit_breaker AS breaker) AS gateways,
       (SELECT coalesce(sum(concurrency), 0) FROM active) AS workers,
       median_factor, late_factor, interruptions
  FROM {schema}.estimate_state
