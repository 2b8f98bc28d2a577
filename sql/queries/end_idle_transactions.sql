-- end_idle_transactions: ends those of find_idle_transactions that are convertq's own, which rolls them back
-- Parameters: older_than (s)
-- Rows: one per session: pid, ended
SELECT pid, pg_terminate_backend(pid) AS ended
  FROM pg_stat_activity
 WHERE datname = current_database() AND state LIKE 'idle in transaction%%'
     AND application_name LIKE 'convertq:%%'
   AND state_change < clock_timestamp() - make_interval(secs => %(older_than)s) AND pid <> pg_backend_pid()
