-- get_transaction_status: what became of a transaction whose COMMIT may not have been answered
-- An id that this server has not given out yet is another server's, which was the primary before.
-- Parameters: id
-- Rows: one: status (committed, aborted, in progress; null when it is not known any more)
SELECT CASE WHEN %(id)s::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(%(id)s::xid8) END
    AS status
