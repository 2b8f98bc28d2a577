-- declare_limits: the gateways whose limit is adaptive, and the most that each limit may be
-- That is the number of workers of the active servers that declare the gateway, or a fixed limit that another
-- of them declares. Nothing is written unless something has changed.
-- Parameters: first_limit (of a gateway that is new)
-- Rows: (none)
WITH declared AS MATERIALIZED (
    SELECT given.name, coalesce(bool_or(given.is_auto), false) AS is_auto,
           least(sum(server.concurrency), min(given.max_calls) FILTER (WHERE given.max_calls > 0))
               AS most_calls
      FROM {schema}.servers AS server, jsonb_to_recordset(server.gateways) AS given (
               name text, max_calls integer, is_auto boolean)
     WHERE server.status = 'active' GROUP BY given.name
), forgotten AS (
    DELETE FROM {schema}.gateway_limits WHERE gateway IN (SELECT name FROM declared WHERE NOT is_auto)
)
INSERT INTO {schema}.gateway_limits AS known (gateway, max_calls, most_calls)
SELECT name, least(%(first_limit)s, most_calls), most_calls FROM declared
 WHERE is_auto AND NOT EXISTS (
           SELECT FROM {schema}.gateway_limits AS other
            WHERE other.gateway = name AND other.most_calls = declared.most_calls)
 ORDER BY name
ON CONFLICT (gateway) DO UPDATE SET most_calls = excluded.most_calls
