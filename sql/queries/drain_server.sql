-- drain_server: active -> draining, its workers finish what they hold and claim no more
-- This is not a heartbeat: one that came after a gap would hide the gap (heartbeat_server).
-- Parameters: server
-- Rows: one, or none when it was not active
UPDATE {schema}.servers SET status = 'draining'
 WHERE id = %(server)s AND status = 'active'
RETURNING id
