"""What the pages are pictured with: a queue that is empty, busy, full of failures, or held."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

VISITOR = "5f0c1c2e-8d41-4b7e-9a57-2f6d0c3b8e14"
SERVERS = ("conv-01:2114:9f3a", "conv-02:1987:c41e")
#: how a row came to be in its state, seen from now
AGO = "now() - make_interval(secs => {})"
#: an hour of other people's jobs: busier in its middle, a spell of trouble before the end
HOUR = """
WITH made AS (
    INSERT INTO jobs (owner_session_id, original_filename, bytes, sha256, status, created_at, queued_at, started_at,
                      completed_at)
    SELECT 'somebody', 'document ' || n || '.pdf', 40000 + n, lpad(n::text, 64, '0'), 'complete', at - interval '8 s',
           at - interval '8 s', at - interval '3 s', at
      FROM generate_series(1, %(jobs)s) AS n
     CROSS JOIN LATERAL (SELECT now() - interval '60 min' * (1 - (n / %(jobs)s::float) ^ %(shape)s) AS at) AS spread
    RETURNING id, completed_at
)
INSERT INTO job_events (job_id, event_type, at, meta)
SELECT id, 'complete', completed_at, jsonb_build_object('gateway_ok', true, 'gateway_status', 200, 'gateway_ms',
       (900 + 700 * random() ^ 3 * 4 + 500 * sin(extract(epoch FROM completed_at) / 700))::int)
  FROM made
"""
UNLUCKY_JOBS = """
WITH kinds AS (
    SELECT * FROM unnest(%(kinds)s::int[], %(codes)s::text[], %(messages)s::text[], %(attempts)s::int[],
                         %(names)s::text[], %(owners)s::text[]) AS kind (kind, code, message, attempts, name, owner)
), made AS (
    INSERT INTO jobs (owner_session_id, original_filename, bytes, sha256, status, created_at, queued_at, failed_at,
                      error_code, error_message, attempt_count, dead_letter, upload_path)
    SELECT owner, name, 52000 + n * 713, lpad('f' || n::text, 64, '0'), 'failed', at - interval '30 s',
           at - interval '30 s', at, code, message, attempts, attempts = 3, 'kept'
      FROM generate_series(0, %(jobs)s - 1) AS n
     CROSS JOIN LATERAL (SELECT now() - interval '1 s' * (%(since)s + n * %(every)s) AS at) AS spread
      JOIN kinds ON kind = n %% %(kind_count)s
    RETURNING id, failed_at, error_code, error_message
)
INSERT INTO job_events (job_id, event_type, at, meta)
SELECT id, 'failed', failed_at,
       jsonb_build_object('error_code', error_code, 'gateway_ok', error_code = 'GW_4XX', 'gateway_ms', 2400)
  FROM made
RETURNING job_id
"""
KINDS = [
    ("GW_5XX", "the gateway answered 503", 3, "Fatura 2026-1187.pdf", "b7a0c5d2-1f6e-4f0b-8a55-6c3f9a2e7d10"),
    (
        "GW_TIMEOUT",
        "no answer from the gateway within 180 s",
        3,
        "relatorio-anual.pdf",
        "0d9e8f7a-6b5c-4d3e-9f2a-1b0c9d8e7f6a",
    ),
    ("GW_5XX", "the gateway answered 502", 3, "Encomenda 44-B.pdf", "b7a0c5d2-1f6e-4f0b-8a55-6c3f9a2e7d10"),
    ("GW_4XX", "the gateway answered 422: no text layer", 1, "digitalizada.pdf", "cli"),
    (
        "IO_ERROR",
        "the result could not be written: input/output error",
        2,
        "hotel-porto.pdf",
        "0d9e8f7a-6b5c-4d3e-9f2a-1b0c9d8e7f6a",
    ),
]


@dataclass
class Stage:
    """One database and its two directories."""

    conn: psycopg.Connection[DictRow]
    uploads: Path
    results: Path

    def job(self, name: str, status: str, ago: float, **columns: Any) -> UUID:
        """Of the visitor; its files are there as its state promises. `x_at` is given in seconds ago."""
        job_id = uuid4()
        timestamps = {key: value for key, value in columns.items() if key.endswith("_at") or key == "retry_after"}
        plain = {
            "id": job_id,
            "owner_session_id": VISITOR,
            "original_filename": name,
            "bytes": random.randint(38_000, 2_400_000),
            "sha256": uuid4().hex * 2,
            "status": status,
            **{key: value for key, value in columns.items() if key not in timestamps},
        }
        timestamps = {"created_at": ago, "queued_at": ago, **timestamps}
        names = sql.SQL(", ").join(map(sql.Identifier, [*plain, *timestamps]))
        values = sql.SQL(", ").join(
            [sql.Placeholder()] * len(plain) + [sql.SQL(AGO).format(sql.Placeholder())] * len(timestamps)
        )
        statement = sql.SQL("INSERT INTO jobs ({}) VALUES ({})").format(names, values)
        self.conn.execute(statement, [*plain.values(), *timestamps.values()])
        (self.uploads / f"{job_id}.pdf").write_bytes(b"%PDF-1.7\n%%EOF\n")
        return job_id

    def ready(self, name: str, ago: float, took: float, *, kept: bool = True) -> None:
        path = "kept" if kept else None
        job_id = self.job(
            name, "complete", ago, started_at=ago - 1, completed_at=ago - 1 - took, result_path=path, attempt_count=1
        )
        if kept:
            (self.results / f"{job_id}.xml").write_text("<invoice/>\n")

    def running(self, name: str, ago: float, slot: int, step: str | None = None, percent: int = 0) -> None:
        holder = f"{SERVERS[slot % 2]}/{slot // 2 + 1}"
        job_id = self.job(
            name,
            "processing",
            ago,
            started_at=ago - 1,
            last_attempt_at=ago - 1,
            leased_by=holder,
            lease_expires_at=-600,
            attempt_count=1,
        )
        if step:
            self.conn.execute(
                "INSERT INTO job_progress (job_id, step, percent) VALUES (%s, %s, %s)", [job_id, step, percent]
            )

    def failed(self, name: str, ago: float, code: str, message: str, **columns: Any) -> None:
        job_id = self.job(
            name,
            "failed",
            ago,
            failed_at=ago - 2,
            error_code=code,
            error_message=message,
            **{"upload_path": "kept", **columns},
        )
        if columns.get("upload_path", "kept") is None:
            (self.uploads / f"{job_id}.pdf").unlink()

    def servers(self) -> None:
        for number, server in enumerate(SERVERS):
            host, pid, _ = server.split(":")
            self.conn.execute(
                "INSERT INTO servers (id, hostname, pid, version, environment, concurrency, started_at,"
                " last_heartbeat_at)"
                " VALUES (%s, %s, %s, '0.1.0', 'production', 4, now() - interval '9 h' * %s, now() - interval '2 s')",
                [server, host, int(pid), number + 1],
            )

    def hour(self, jobs: int, shape: float = 0.8) -> None:
        self.conn.execute(HOUR, {"jobs": jobs, "shape": shape})

    def trouble(self, jobs: int, every: float, since: float = 40) -> None:
        """One every so many seconds, the last of them so many seconds ago."""
        codes, messages, attempts, names, owners = zip(*KINDS, strict=True)
        made = self.conn.execute(
            UNLUCKY_JOBS,
            {
                "jobs": jobs,
                "every": every,
                "since": since,
                "kinds": list(range(len(KINDS))),
                "codes": list(codes),
                "messages": list(messages),
                "attempts": list(attempts),
                "names": list(names),
                "owners": list(owners),
                "kind_count": len(KINDS),
            },
        )
        for row in made:
            (self.uploads / f"{row['job_id']}.pdf").write_bytes(b"%PDF-1.7\n%%EOF\n")


def empty(stage: Stage) -> None:
    """Nothing yet; a server waits."""
    stage.servers()


def busy(stage: Stage) -> None:
    stage.servers()
    stage.hour(1400)
    stage.trouble(4, 700)
    stage.ready("Fatura 2026-1201.pdf", 192, 3)
    stage.ready("Fatura 2026-1202.pdf", 191, 4)
    stage.ready("Hotel Ribeira, março.pdf", 64, 6)
    stage.running("Armazéns do Norte – encomenda 88.pdf", 21, 0, "writing", 92)
    stage.running("relatorio-anual-2025.pdf", 19, 1, "converting", 58)
    stage.running("Fatura 2026-1203.pdf", 17, 2)
    stage.running("oficina-maio.pdf", 15, 3, "reading", 12)
    stage.job("papelaria-central.pdf", "queued", 13, retry_after=-24, attempt_count=1)
    for number, name in enumerate(("Fatura 2026-1204.pdf", "mercearia.pdf")):
        stage.job(name, "queued", 11 - number)


def failures(stage: Stage) -> None:
    stage.servers()
    stage.trouble(46, 37, since=310)  # over by now: the last calls went well, and the breaker is closed
    stage.hour(900)
    stage.ready("Fatura 2026-1150.pdf", 3 * 86400, 3, kept=False)
    stage.ready("Fatura 2026-1201.pdf", 3800, 3)
    stage.failed("notas.docx", 3100, "NOT_PDF", "the file is not a PDF", upload_path=None)
    stage.failed(
        "catálogo-2026-imagens.pdf",
        2400,
        "TOO_LARGE",
        "the file is larger than 52428800 bytes",
        upload_path=None,
        bytes=88_310_000,
    )
    stage.failed("digitalizada.pdf", 1500, "GW_4XX", "the gateway answered 422: no text layer", attempt_count=1)
    stage.failed(
        "relatorio-anual-2025.pdf",
        900,
        "GW_TIMEOUT",
        "no answer from the gateway within 180 s",
        attempt_count=3,
        dead_letter=True,
    )
    stage.failed("Encomenda 44-B.pdf", 240, "GW_5XX", "the gateway answered 502", attempt_count=3, dead_letter=True)
    stage.ready("Fatura 2026-1202.pdf", 130, 2)


def held(stage: Stage) -> None:
    stage.servers()
    stage.hour(1100, 1.1)
    stage.trouble(34, 11)
    stage.ready("Fatura 2026-1201.pdf", 400, 3)
    stage.ready("Fatura 2026-1202.pdf", 390, 4)
    for number, name in enumerate(
        ("oficina-maio.pdf", "papelaria-central.pdf", "Fatura 2026-1203.pdf", "mercearia.pdf")
    ):
        stage.job(name, "queued", 90 - number)
    stage.conn.execute(
        "UPDATE circuit_breaker SET state = 'open', opened_at = now() - interval '74 s',"
        " probe_after = now() + interval '17 s'"
    )


SCENES: dict[str, Callable[[Stage], None]] = {"empty": empty, "busy": busy, "failures": failures, "held": held}


def set_the_stage(conn: psycopg.Connection[DictRow], uploads: Path, results: Path, scene: str) -> None:
    random.seed(7)
    conn.execute("SELECT setseed(0.7)")
    conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    SCENES[scene](Stage(conn, uploads, results))
    conn.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
    conn.execute("SELECT recount_jobs()")
