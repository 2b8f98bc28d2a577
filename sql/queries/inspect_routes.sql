-- inspect_routes: servers whose gateways differ from the caller's, and jobs that no active server claims
-- A server of an earlier version has declared nothing, and is not compared. Of each mapping that no active
-- server declares, a queued job is looked for.
-- Parameters: heartbeat_timeout (s), digest (of the caller's gateways)
-- Rows: one per server that differs (server), and one per mapping (mapping, gateway)
WITH active AS MATERIALIZED (
    SELECT id, gateways, gateways_digest FROM {schema}.servers
     WHERE status = 'active' AND last_heartbeat_at >= now() - make_interval(secs => %(heartbeat_timeout)s)
)
SELECT id AS server, NULL AS mapping, NULL AS gateway FROM active
 WHERE gateways_digest <> '' AND gateways_digest <> %(digest)s
UNION ALL
SELECT NULL, known.mapping, known.gateway
  FROM {schema}.mapping_routes AS known CROSS JOIN LATERAL (
       SELECT FROM {schema}.jobs AS job
        WHERE job.status = 'queued' AND job.retry_after IS NULL AND job.route = known.gateway
          AND job.mapping = known.mapping LIMIT 1) AS waiting
 WHERE EXISTS (SELECT FROM active) AND NOT EXISTS (
           SELECT FROM active, jsonb_to_recordset(active.gateways) AS given (name text, mappings text[])
            WHERE given.name = known.gateway AND known.mapping = ANY (given.mappings))
 ORDER BY 1, 2
