-- end_sessions: ends this user's other sessions with this application name, and waits for their end
-- A session whose client is gone may still be committing, for as long as a synchronous standby is silent.
-- When it is ended, it has committed or not, and what it has claimed is visible.
-- Parameters: application_name, wait_ms
-- Rows: one per session: pid, is_gone
SELECT pid, pg_terminate_backend(pid, %(wait_ms)s) AS is_gone
  FROM pg_stat_activity
 WHERE application_name = %(application_name)s AND usename = session_user AND datname = current_database()
   AND pid <> pg_backend_pid()
