-- declare_gateways: the routes and limits in force, from what the active servers declare
-- A mapping belongs to the gateway that the server which started last names for it. The smallest limit
-- counts; one that is adaptive (declare_limits) stays as it was decided. Nothing is written unless something
-- has changed. A slot that was taken while its server was being marked dead is freed. jobs_follow: see
-- reroute_jobs.
-- Parameters: (none)
-- Rows: one: must_reroute (queued jobs may have a route that is out of date), has_limits
WITH declared AS MATERIALIZED (
    SELECT given.name, given.mappings, given.max_calls, server.started_at, server.id AS server
      FROM {schema}.servers AS server, jsonb_to_recordset(server.gateways) AS given (
               name text, mappings text[], max_calls integer)
     WHERE server.status = 'active'
), limits AS MATERIALIZED (
    SELECT name, coalesce((SELECT least(adaptive.max_calls, adaptive.most_calls)
                             FROM {schema}.gateway_limits AS adaptive WHERE adaptive.gateway = name),
                          min(max_calls) FILTER (WHERE max_calls > 0)) AS max_calls
      FROM declared GROUP BY name
), breakers AS (
    INSERT INTO {schema}.circuit_breaker AS breaker (gateway, max_calls)
    SELECT name, max_calls FROM limits
     WHERE NOT EXISTS (SELECT FROM {schema}.circuit_breaker AS known
                        WHERE known.gateway = name AND known.max_calls IS NOT DISTINCT FROM limits.max_calls)
     ORDER BY name
    ON CONFLICT (gateway) DO UPDATE SET max_calls = excluded.max_calls
), slots AS (
    INSERT INTO {schema}.gateway_slots (gateway, number)
    SELECT name, number FROM limits, generate_series(1, max_calls) AS wanted (number)
     WHERE NOT EXISTS (SELECT FROM {schema}.gateway_slots AS slot
                        WHERE slot.gateway = name AND slot.number = wanted.number)
     ORDER BY name, number
    ON CONFLICT DO NOTHING
), freed AS (
    UPDATE {schema}.gateway_slots AS slot SET holder = NULL, taken_at = NULL
     WHERE holder IS NOT NULL
       AND NOT EXISTS (SELECT FROM {schema}.servers AS server
                        WHERE server.id = regexp_replace(slot.holder, '/[0-9]+$', '')
                          AND server.status IN ('active', 'draining'))
), routes AS MATERIALIZED (
    SELECT DISTINCT ON (mapping) mapping, name AS gateway
      FROM declared, unnest(mappings) AS mapping ORDER BY mapping, started_at DESC, server
), routed AS (
    INSERT INTO {schema}.mapping_routes AS known (mapping, gateway, jobs_follow)
    SELECT mapping, gateway, {schema}.route_of(mapping) = gateway FROM routes
     WHERE NOT EXISTS (SELECT FROM {schema}.mapping_routes AS other
                        WHERE other.mapping = routes.mapping AND other.gateway = routes.gateway)
     ORDER BY mapping
    ON CONFLICT (mapping) DO UPDATE
       SET gateway = excluded.gateway, jobs_follow = false, changed_by = pg_current_xact_id()
     WHERE known.gateway <> excluded.gateway
    RETURNING jobs_follow
)
SELECT EXISTS (SELECT FROM {schema}.mapping_routes WHERE NOT jobs_follow)
       OR EXISTS (SELECT FROM routed WHERE NOT jobs_follow) AS must_reroute,
       EXISTS (SELECT FROM limits WHERE max_calls IS NOT NULL)
       OR EXISTS (SELECT FROM {schema}.gateway_slots WHERE holder IS NOT NULL) AS has_limits
