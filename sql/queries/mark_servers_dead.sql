-- mark_servers_dead: active or draining -> dead, servers whose silence somebody was able to hear
-- During an outage every server falls silent. So there must be a witness: a server that was heard a second
-- ago, and without a gap for one heartbeat timeout, because the database was reachable for that long. A
-- command that has listened for as long on one connection is a witness itself (listening_since).
-- Parameters: heartbeat_timeout (s), longest_gap (s), listening_since (null: a server must be the witness)
-- Rows: one per server
UPDATE {schema}.servers AS silent
   SET status = 'dead', stopped_at = now()
 WHERE silent.status IN ('active', 'draining')
   AND silent.last_heartbeat_at < now() - make_interval(secs => %(heartbeat_timeout)s)
   AND (%(listening_since)s::timestamptz <= now() - make_interval(secs => %(heartbeat_timeout)s)
        OR EXISTS (
            SELECT FROM {schema}.servers AS witness
             WHERE witness.status IN ('active', 'draining')
               AND witness.last_heartbeat_at >= now() - make_interval(secs => %(longest_gap)s)
               AND witness.heard_since <= now() - make_interval(secs => %(heartbeat_timeout)s)))
RETURNING id
