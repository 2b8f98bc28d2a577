-- unlock_migrations: ends lock_migrations_for_session
-- Parameters: name
-- Rows: one
SELECT pg_advisory_unlock(hashtext('convertq migrate ' || %(name)s)) AS unlocked
