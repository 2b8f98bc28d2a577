-- lock_migrations: one migrate at a time in this schema, until the transaction ends
-- It never waits: a statement that waits holds a snapshot, for which CREATE INDEX CONCURRENTLY would wait.
-- Parameters: name
-- Rows: one
SELECT pg_try_advisory_xact_lock(hashtext('convertq migrate ' || %(name)s)) AS locked
