-- create_schema_migrations: the list of what was applied
-- supports_code_from: the oldest code that works with this migration, named by the newest migration that this
-- code knows; null: none that does not know this one. Older code reads it here: it does not have the file.
-- Parameters: (none)
-- Rows: (none)
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    version            integer     PRIMARY KEY,
    name               text        NOT NULL,
    checksum           char(64)    NOT NULL,
    applied_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    supports_code_from integer,

    CONSTRAINT no_migration_supports_only_newer_code CHECK (supports_code_from BETWEEN 1 AND version)
)
