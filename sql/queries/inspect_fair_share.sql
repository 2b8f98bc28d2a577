-- inspect_fair_share: how owners share the workers, and the active servers whose settings differ from that
-- Parameters: heartbeat_timeout (s)
-- Rows: one per server that differs, or one with a null server: takes_turns, owner_max_running (in force),
--   server
SELECT share.takes_turns, share.owner_max_running, server.id AS server
  FROM {schema}.fair_share AS share
  LEFT JOIN {schema}.servers AS server
    ON server.status = 'active'
   AND server.last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)
   AND (server.takes_turns <> share.takes_turns OR server.owner_max_running <> share.owner_max_running)
 ORDER BY server.id
