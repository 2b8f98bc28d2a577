-- heartbeat_server: active or draining stays so
-- heard_since begins again after a gap: for one heartbeat timeout it is no witness (mark_servers_dead).
-- Parameters: server, longest_gap (s)
-- Rows: one with the breaker's state, or none when this server was marked dead
UPDATE {schema}.servers
   SET heard_since = CASE WHEN last_heartbeat_at < now() - make_interval(secs => %(longest_gap)s)
                          THEN now() ELSE heard_since END,
       last_heartbeat_at = now()
 WHERE id = %(server)s AND status IN ('active', 'draining')
RETURNING (SELECT state FROM {schema}.circuit_breaker) AS breaker
