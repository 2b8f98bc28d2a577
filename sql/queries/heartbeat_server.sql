-- heartbeat_server: active or draining stays so
-- heard_since begins again after a gap: for one heartbeat timeout it is no witness (mark_servers_dead).
-- concurrency follows a pool that grows and shrinks.
-- Parameters: server, concurrency, longest_gap (s), gateways (their names)
-- Rows: one with the state of the worst breaker of these gateways, or none when this server was marked dead
UPDATE {schema}.servers
   SET heard_since = CASE WHEN last_heartbeat_at < now() - make_interval(secs => %(longest_gap)s)
                          THEN now() ELSE heard_since END,
       last_heartbeat_at = now(), concurrency = %(concurrency)s
 WHERE id = %(server)s AND status IN ('active', 'draining')
RETURNING coalesce((
    SELECT state FROM {schema}.circuit_breaker WHERE gateway = ANY (%(gateways)s::text[])
     ORDER BY array_position(ARRAY['open', 'half_open', 'closed'], state) LIMIT 1), 'closed') AS breaker
