-- drain_server: active -> draining, its workers finish what they hold and claim no more
-- Parameters: server
-- Rows: one, or none when it was not active
UPDATE {schema}.servers SET status = 'draining', last_heartbeat_at = now()
 WHERE id = %(server)s AND status = 'active'
RETURNING id
