-- create_schema_migrations: the list of what was applied
-- Parameters: (none)
-- Rows: (none)
CREATE TABLE IF NOT EXISTS {schema}.schema_migrations (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   char(64)    NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
