-- heartbeat_server: active or draining stays so
-- Parameters: server
-- Rows: one with the breaker's state, or none when this server was declared dead
UPDATE {schema}.servers SET last_heartbeat_at = now()
 WHERE id = %(server)s AND status IN ('active', 'draining')
RETURNING (SELECT state FROM {schema}.circuit_breaker) AS breaker
