-- find_horizon_holder: what keeps dead rows from being removed: the oldest snapshot or transaction
-- A standby's queries count through its feedback: in the slot that it uses, or else in the process that
-- sends to it. A slot's catalog_xmin (logical replication) keeps rows of the catalogue, and none of jobs. A
-- role without pg_read_all_stats sees that another role's session holds a snapshot, but not since when: it
-- is `hidden`.
-- Parameters: (none)
-- Rows: one, or none: kind (session, hidden, standby, slot, prepared), name, program, doing, transactions,
--   seconds
SELECT *
  FROM (SELECT CASE WHEN backend_type IS NULL THEN 'hidden' ELSE 'session' END AS kind, pid::text AS name,
               coalesce(nullif(application_name, ''), usename::text) AS program,
               state || ': ' || left(regexp_replace(query, '\s+', ' ', 'g'), 80) AS doing,
               greatest(age(backend_xmin), age(backend_xid)) AS transactions,
               extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds
          FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND datname = current_database()
           AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
           AND (backend_type = 'client backend' OR backend_type IS NULL AND usesysid IS NOT NULL)
        UNION ALL
        SELECT 'standby', application_name,
               coalesce(host(client_addr),
                        CASE WHEN state IS NULL THEN 'where is hidden' ELSE 'on this host' END),
               'a query there', age(backend_xmin), NULL
          FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
        UNION ALL
        SELECT 'slot', slot_name::text, coalesce(plugin::text, 'physical'),
               CASE WHEN active THEN 'active' ELSE 'unused' END,
               age(xmin), NULL
          FROM pg_replication_slots WHERE xmin IS NOT NULL
        UNION ALL
        SELECT 'prepared', gid, owner::text, 'prepared transaction', age(transaction),
               extract(epoch FROM clock_timestamp() - prepared)::double precision
          FROM pg_prepared_xacts WHERE database = current_database()) AS holder
 ORDER BY transactions DESC, seconds DESC NULLS LAST
 LIMIT 1
