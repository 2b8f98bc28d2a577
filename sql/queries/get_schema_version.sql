-- get_schema_version: the newest migration that was applied; fails with undefined_table where none was
-- Parameters: (none)
-- Rows: one
SELECT coalesce(max(version), 0) AS version FROM {schema}.schema_migrations
