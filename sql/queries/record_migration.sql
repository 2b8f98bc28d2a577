-- record_migration: in the transaction that applied it
-- Parameters: version, name, checksum
-- Rows: (none)
INSERT INTO {schema}.schema_migrations (version, name, checksum) VALUES (%(version)s, %(name)s, %(checksum)s)
