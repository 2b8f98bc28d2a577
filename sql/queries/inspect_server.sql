-- inspect_server: what doctor wants to know of the server itself; needs no table
-- A role without pg_read_all_stats is not told the kind of another role's session; with a database and a
-- user it is, but for the workers of a parallel query, a client's.
-- Parameters: (none)
-- Rows: one
WITH client AS (
    SELECT application_name, usename
      FROM pg_stat_activity
     WHERE backend_type = 'client backend' OR backend_type IS NULL AND datname IS NOT NULL
         AND usesysid IS NOT NULL
)
SELECT current_setting('server_version_num')::int AS version_number, current_setting('server_version')
    AS version,
       pg_is_in_recovery() AS is_standby, clock_timestamp() AS now, current_setting('autovacuum')::boolean
           AS autovacuum,
       current_setting('max_connections')::int AS max_connections,
       current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true), '0')::int AS reserved_connections,
       (SELECT count(*) FROM client) AS used_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%%')
           AS convertq_connections,
       (SELECT format('%%s has %%s', coalesce(nullif(application_name, ''), usename::text), count(*))
          FROM client WHERE application_name NOT LIKE 'convertq:%%'
         GROUP BY application_name, usename HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 1)
             AS most_connections
