-- lock_migrations: one migrate at a time in this schema, until the transaction ends
-- Parameters: name
-- Rows: (none)
SELECT pg_advisory_xact_lock(hashtext('convertq migrate ' || %(name)s))
