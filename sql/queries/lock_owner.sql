-- lock_owner: until the end of the transaction nobody else counts this owner's jobs in order to add one
-- Parameters: owner
-- Rows: one
SELECT pg_advisory_xact_lock(hashtextextended('convertq:' || %(owner)s::text, 0))
