-- list_migrations: what was applied
-- Parameters: (none)
-- Rows: one per migration
SELECT version, name, checksum, applied_at FROM {schema}.schema_migrations ORDER BY version
