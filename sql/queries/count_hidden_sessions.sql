-- count_hidden_sessions: sessions of this database that this role may not look into, and who it is
-- Of another role's session one without pg_read_all_stats sees neither the state nor the kind. Whatever has
-- no user is the server's own.
-- Parameters: (none)
-- Rows: one: sessions, role (quoted, for a GRANT)
SELECT count(*) AS sessions, quote_ident(current_user) AS role
  FROM pg_stat_activity
 WHERE datname = current_database() AND usesysid IS NOT NULL AND backend_type IS NULL
