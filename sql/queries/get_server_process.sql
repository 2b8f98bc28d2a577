-- get_server_process: which process of PostgreSQL serves this transaction; a pooler changes it between two
-- Parameters: (none)
-- Rows: one
SELECT pg_backend_pid()
