-- register_server: -> active, one row per supervisor run
-- A registration whose COMMIT was not answered is repeated under the same id, and finds its own active row.
-- Parameters: server, hostname, pid, version, environment, concurrency, gateways (JSON array: name, mappings,
--   max_calls, is_auto), gateways_digest, takes_turns, owner_max_running
-- Rows: one, or none when the id was used before: it is never used again
INSERT INTO {schema}.servers AS known (id, hostname, pid, version, environment, concurrency, gateways,
                                        gateways_digest, takes_turns, owner_max_running)
VALUES (%(server)s, %(hostname)s, %(pid)s, %(version)s, %(environment)s, %(concurrency)s,
        %(gateways)s::jsonb, %(gateways_digest)s, %(takes_turns)s, %(owner_max_running)s)
ON CONFLICT (id) DO UPDATE SET last_heartbeat_at = now(), heard_since = now()
 WHERE known.status = 'active' AND known.pid = excluded.pid
RETURNING id
