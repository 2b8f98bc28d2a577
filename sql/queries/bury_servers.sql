-- bury_servers: active or draining -> dead, servers whose heartbeat has stopped
-- Parameters: heartbeat_timeout (s)
-- Rows: one per server
UPDATE {schema}.servers
   SET status = 'dead', stopped_at = now()
 WHERE status IN ('active', 'draining')
   AND last_heartbeat_at < now() - make_interval(secs => %(heartbeat_timeout)s)
RETURNING id
