-- find_silent_servers: active or draining ones without a heartbeat for one heartbeat timeout, dead or not
-- Parameters: heartbeat_timeout (s)
-- Rows: one per server: id, now (of the database)
SELECT id, now() AS now FROM {schema}.servers
 WHERE status IN ('active', 'draining')
   AND last_heartbeat_at < now() - make_interval(secs => %(heartbeat_timeout)s)
