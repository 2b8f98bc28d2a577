"""Jobs whose retention is over, for a benchmark: rows, events, files on disk; and beside them some that must stay."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psycopg
from convertq.queue.store.directory import DirectoryStore

PDF = b"%PDF-1.4\n" + b"% a source of the size of a small invoice\n" * 90
XML = b"<invoice>" + b"<line/>" * 300 + b"</invoice>"
#: of each kind that must stay: waiting for a retry, uploaded and forgotten, and finished a moment ago
KEPT = 1000

#: over a year ago; both files of a complete job and the source of a failed one (every tenth) have expired
EXPIRED = """
INSERT INTO jobs (owner_session_id, bytes, sha256, status, created_at, queued_at, started_at, completed_at, failed_at,
                  error_code, error_message, upload_path, result_path, expires_at, attempt_count)
SELECT 'bench', 1, lpad(to_hex(n), 64, '0'), status, at, at, at, CASE status WHEN 'complete' THEN at END,
       CASE status WHEN 'failed' THEN at END, CASE status WHEN 'failed' THEN 'GW_4XX' END,
       CASE status WHEN 'failed' THEN 'the gateway answered 422' END, '/uploads/x.pdf',
       CASE status WHEN 'complete' THEN '/results/x.xml' END,
       CASE status WHEN 'complete' THEN at + interval '30 days' END, 1
  FROM (SELECT n, CASE WHEN n %% 10 = 0 THEN 'failed' ELSE 'complete' END AS status,
               now() - interval '400 days' + n * interval '1 second' AS at
          FROM generate_series(1, %(jobs)s) AS n) AS made
"""
STAYING = """
INSERT INTO jobs (owner_session_id, bytes, sha256, status, created_at, queued_at, retry_after, completed_at,
                  upload_path, result_path, expires_at)
SELECT 'staying', 1, lpad(to_hex(n), 64, '0'), status, now() - interval '400 days', now() - interval '400 days',
       CASE status WHEN 'queued' THEN now() + interval '1 day' END, CASE status WHEN 'complete' THEN now() END,
       '/uploads/x.pdf', CASE status WHEN 'complete' THEN '/results/x.xml' END,
       CASE status WHEN 'complete' THEN now() + interval '30 days' END
  FROM (SELECT n, (ARRAY['queued', 'uploaded', 'complete'])[1 + n %% 3] AS status
          FROM generate_series(1, 3 * %(kept)s) AS n) AS made
"""
EVENTS = """
INSERT INTO job_events (job_id, event_type, at, xact_id)
SELECT id, event_type, created_at, '0'
  FROM jobs
 CROSS JOIN LATERAL (VALUES ('created', 0), ('queued', 1), ('processing', 2), (status, 3)) AS e (event_type, step)
 WHERE owner_session_id = 'bench'
 ORDER BY created_at, step
"""
COUNTED = "UPDATE counters_position SET restored_to = (SELECT max(id) FROM job_events)"


def load_expired(url: str, store: DirectoryStore, jobs: int) -> None:
    """Around the triggers; the files as old as their jobs, so that nothing is spared for its age."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute(EXPIRED, {"jobs": jobs})
        conn.execute(STAYING, {"kept": KEPT})
        conn.execute(EVENTS)
        conn.execute(COUNTED)
        conn.execute("SELECT recount_jobs()")
        found = conn.execute("SELECT id, result_path IS NOT NULL FROM jobs").fetchall()
        conn.execute("VACUUM ANALYZE")
    write(PDF, (store.uploads / f"{job_id}.pdf" for job_id, _ in found))
    write(XML, (store.results / f"{job_id}.xml" for job_id, has_result in found if has_result))
    os.sync()  # what is written here must not be paid for later


def write(content: bytes, paths: Iterable[Path]) -> None:
    for path in paths:
        path.write_bytes(content)
        os.utime(path, (0, 0))
