-- list_servers: the registered supervisors, those at work first; a silent one is shown as dead
-- Parameters: heartbeat_timeout (s)
-- Rows: one per server
SELECT id, hostname, pid, version, environment, concurrency,
       CASE WHEN is_silent THEN 'dead' ELSE status END AS status,
       started_at, last_heartbeat_at, stopped_at,
       extract(epoch FROM coalesce(stopped_at, now()) - started_at)::double precision AS up_seconds,
       extract(epoch FROM now() - last_heartbeat_at)::double precision AS heartbeat_seconds
  FROM {schema}.servers
 CROSS JOIN LATERAL (
       SELECT status IN ('active', 'draining')
              AND last_heartbeat_at < now() - make_interval(secs => %(heartbeat_timeout)s) AS is_silent)
                  AS heard
 ORDER BY array_position(ARRAY['active', 'draining', 'dead', 'stopped'],
                         CASE WHEN is_silent THEN 'dead' ELSE status END),
          started_at DESC, id
