-- record_migration: in the transaction that applied it; or after it, where none could
-- Parameters: version, name, checksum, supports_code_from
-- Rows: (none)
INSERT INTO {schema}.schema_migrations (version, name, checksum, supports_code_from)
VALUES (%(version)s, %(name)s, %(checksum)s, %(supports_code_from)s)
