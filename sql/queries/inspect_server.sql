-- inspect_server: what doctor wants to know of the server itself; needs no table
-- Parameters: (none)
-- Rows: one
SELECT current_setting('server_version_num')::int AS version_number, current_setting('server_version') AS version,
       pg_is_in_recovery() AS is_standby, clock_timestamp() AS now, current_setting('autovacuum')::boolean AS autovacuum,
       current_setting('max_connections')::int AS max_connections,
       current_setting('superuser_reserved_connections')::int
           + coalesce(current_setting('reserved_connections', true), '0')::int AS reserved_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%%') AS convertq_connections,
       (SELECT format('%%s has %%s', coalesce(nullif(application_name, ''), usename::text), count(*))
          FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name NOT LIKE 'convertq:%%'
         GROUP BY application_name, usename HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 1) AS most_connections
