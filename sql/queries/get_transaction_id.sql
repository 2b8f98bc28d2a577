-- get_transaction_id: of the transaction that this is in, for get_transaction_status
-- Parameters: (none)
-- Rows: one: id
SELECT pg_current_xact_id()::text AS id
