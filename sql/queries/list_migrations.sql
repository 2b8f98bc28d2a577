-- list_migrations: what was applied
-- Parameters: (none)
-- Rows: one per migration
SELECT version, name, checksum, applied_at, coalesce(supports_code_from, version) AS supports_code_from
  FROM {schema}.schema_migrations ORDER BY version
