-- lock_migrations_for_session: as lock_migrations, but until unlock_migrations: outside a transaction
-- Parameters: name
-- Rows: one
SELECT pg_try_advisory_lock(hashtext('convertq migrate ' || %(name)s)) AS locked
