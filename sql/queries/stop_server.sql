-- stop_server: active, draining or dead -> stopped, after its last worker has ended
-- Parameters: server
-- Rows: one, or none when it was never registered
UPDATE {schema}.servers SET status = 'stopped', stopped_at = now(), last_heartbeat_at = now()
 WHERE id = %(server)s AND status <> 'stopped'
RETURNING id
