-- get_schema_version: the newest migration that was applied; fails with undefined_table where none was
-- supports_code_from: the oldest code that works with every one of them. The limits are those of
-- get_session_limits: one round trip serves both.
-- Parameters: (none)
-- Rows: one
SELECT coalesce(max(version), 0) AS version, max(coalesce(supports_code_from, version)) AS supports_code_from,
       (1000 * extract(epoch FROM current_setting('statement_timeout')::interval))::bigint
           AS statement_timeout_ms,
       (1000 * extract(epoch FROM current_setting('lock_timeout')::interval))::bigint AS lock_timeout_ms
  FROM {schema}.schema_migrations
