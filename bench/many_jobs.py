"""Many jobs for a benchmark: loaded around the triggers, one INSERT … SELECT a table, then counted from the events."""

from __future__ import annotations

from convertq.embedded.postgres import EmbeddedPostgres
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate
from convertq.queue.database.url import parse_database_url

#: after events were loaded around the triggers: they count as aggregated, and the counters are what they add up to
AGGREGATE = """
UPDATE counters_position SET event_id = (SELECT max(id) FROM job_events);
INSERT INTO counters SELECT * FROM count_events('0', 0, '0', (SELECT event_id FROM counters_position))
ON CONFLICT (name, label) DO UPDATE SET value = excluded.value;
"""
#: 80 % complete, 10 % failed, 9 % queued, 1 % uploaded, over the last 30 days
LOAD = """
SET session_replication_role = replica;
INSERT INTO jobs (id, owner_session_id, original_filename, bytes, sha256, status, created_at, queued_at, started_at,
                  completed_at, failed_at, attempt_count, error_code, error_message, result_path, updated_at)
SELECT gen_random_uuid(), 'owner-' || n %% 1000, 'invoice-' || n || '.pdf', 20000, lpad(to_hex(n), 64, '0'), status,
       at, at, CASE WHEN ended THEN at END, CASE WHEN status = 'complete' THEN at END,
       CASE WHEN status = 'failed' THEN at END, ended::int, CASE WHEN status = 'failed' THEN 'GW_5XX' END,
       CASE WHEN status = 'failed' THEN 'the gateway answered 503' END, CASE WHEN status = 'complete' THEN '/x' END, at
  FROM (SELECT n, now() - interval '30 days' * (1 - n::float8 / %(jobs)s) AS at,
               CASE WHEN n %% 100 < 80 THEN 'complete' WHEN n %% 100 < 90 THEN 'failed'
                    WHEN n %% 100 < 99 THEN 'queued' ELSE 'uploaded' END AS status,
               n %% 100 < 90 AS ended
          FROM generate_series(1, %(jobs)s) AS n) AS made;
INSERT INTO job_events (job_id, event_type, at, meta, xact_id)
SELECT id, event_type, created_at, CASE WHEN event_type IN ('complete', 'failed') THEN jsonb_build_object(
           'worker', 'host-a:1:aaaa/1', 'attempt', 1, 'gateway_ok', event_type = 'complete',
           'gateway_ms', (random() * 4000)::int, 'duration_ms', 4100, 'error_code', error_code) ELSE '{}' END, '0'
  FROM jobs
 CROSS JOIN LATERAL (VALUES ('created', 0), ('queued', 1), ('processing', 2), (status, 3)) AS e (event_type, step)
 WHERE step <= CASE status WHEN 'uploaded' THEN 0 WHEN 'queued' THEN 1 ELSE 3 END
 ORDER BY created_at, step;
SET session_replication_role = origin;
{aggregate}SELECT recount_jobs();
INSERT INTO servers (id, hostname, pid, version, environment, concurrency, status, stopped_at)
SELECT 'host-' || n || ':1:aaaa', 'host', 1, '1', 'bench', 4, CASE WHEN n < 10 THEN 'active' ELSE 'stopped' END,
       CASE WHEN n >= 10 THEN now() END
  FROM generate_series(1, 20) AS n;
"""


def load(server: EmbeddedPostgres, jobs: int) -> None:
    url = parse_database_url(server.url())
    with connect(url, "convertq:bench", statement_timeout=3600) as connection:
        connection.answer_timeout_seconds = 3600
        migrate(connection, url.schema)
        for statement in (LOAD % {"jobs": jobs}).replace("{aggregate}", AGGREGATE).split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")
