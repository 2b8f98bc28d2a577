-- count_servers: how many are in each status; a silent one counts as dead before anyone has declared it so
-- Parameters: heartbeat_timeout (s)
-- Rows: one per status: status, servers, workers (that they are to run)
SELECT state.status, count(server.id) AS servers, coalesce(sum(server.concurrency), 0) AS workers
  FROM unnest(ARRAY['active', 'draining', 'stopped', 'dead']) AS state (status)
  LEFT JOIN {schema}.servers AS server
    ON state.status = CASE WHEN server.status IN ('active', 'draining')
                            AND server.last_heartbeat_at
                                < now() - make_interval(secs => %(heartbeat_timeout)s)
                           THEN 'dead' ELSE server.status END
 GROUP BY state.status
