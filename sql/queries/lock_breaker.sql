-- lock_breaker: first statement of a transaction that records a failed gateway call
-- Two that fail at the same time would not see each other's event; behind the lock the second sees the
-- first.
-- Parameters: gateway
-- Rows: one
SELECT state FROM {schema}.circuit_breaker WHERE gateway = %(gateway)s FOR UPDATE
