-- find_lock_holder: the session that keeps a migration waiting
-- It is another migrate, or the oldest one with a lock on a table of this schema. pid is null for a prepared
-- transaction; since is null where this user may not see it.
-- Parameters: schema_name
-- Rows: one, or none when nobody is in the way any more
SELECT lock.pid, activity.application_name AS application, activity.xact_start AS since
  FROM pg_locks AS lock LEFT JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
 WHERE lock.granted AND lock.pid IS DISTINCT FROM pg_backend_pid()
   AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (lock.locktype = 'advisory' AND lock.objsubid = 1
            AND lock.classid::bigint << 32 | lock.objid::bigint
                = hashtext('convertq migrate ' || %(schema_name)s)
        OR lock.relation IN (
            SELECT entry.oid
              FROM pg_class AS entry JOIN pg_namespace AS place ON place.oid = entry.relnamespace
             WHERE place.nspname = %(schema_name)s AND entry.relkind IN ('r', 'p')))
 ORDER BY lock.locktype = 'advisory' DESC, activity.xact_start NULLS LAST
 LIMIT 1
