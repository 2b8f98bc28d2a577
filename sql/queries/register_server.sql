-- register_server: -> active, one row per supervisor run
-- Parameters: server, hostname, pid, version, environment, concurrency
-- Rows: one
INSERT INTO {schema}.servers (id, hostname, pid, version, environment, concurrency)
VALUES (%(server)s, %(hostname)s, %(pid)s, %(version)s, %(environment)s, %(concurrency)s)
RETURNING id
