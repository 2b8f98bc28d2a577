-- find_idle_transactions: sessions of this database that hold a transaction open and do nothing
-- Parameters: older_than (s)
-- Rows: one per session, the oldest first: pid, program, seconds, is_ours
SELECT pid, coalesce(nullif(application_name, ''), usename::text) AS program,
       extract(epoch FROM clock_timestamp() - state_change)::double precision AS seconds,
       application_name LIKE 'convertq:%%' AS is_ours
  FROM pg_stat_activity
 WHERE datname = current_database() AND state LIKE 'idle in transaction%%'
   AND state_change < clock_timestamp() - make_interval(secs => %(older_than)s)
 ORDER BY state_change
