"""Jobs with real PDFs in tests: puts them where a worker finds them, and reads what became of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, LiteralString
from uuid import UUID, uuid4

import psycopg
from convertq.queue.store.protocol import OpenSource
from psycopg import sql

from tests.waiting import WAIT_SECONDS, Row, eventually, wait_for_row

PDF = b"%PDF-1.7\n1 0 obj << >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
DONE = ("complete", "failed")


class Documents:
    """The documents of one database and its two directories."""

    #: Where results are objects: copies the object at a location into a file.
    fetch: ClassVar[Callable[[str, Path], None] | None] = None

    def __init__(self, conn: psycopg.Connection[Row], uploads: Path, results: Path) -> None:
        self.conn, self.uploads, self.results = conn, uploads, results

    def put(self, content: bytes = PDF, **columns: object) -> UUID:
        """A queued job with its PDF in place."""
        job_id = self.upload(content)
        return self.insert(job_id, bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), **columns)

    def upload(self, content: bytes = PDF) -> UUID:
        """The PDF alone, so that a test can prepare for the id before its row is there."""
        job_id = uuid4()
        self.source(job_id).write_bytes(content)
        return job_id

    def put_many(self, count: int) -> list[UUID]:
        """As `put`, so many times; all become visible at the same time."""
        with self.conn.transaction():
            return [self.put(PDF + b"%% %d\n" % number) for number in range(count)]

    def insert(self, job_id: UUID | None = None, **columns: object) -> UUID:
        """The row alone, by a writer that knows of nothing but this table."""
        job_id = job_id or uuid4()
        values = {"id": job_id, "bytes": len(PDF), "sha256": "0" * 64, "status": "queued", **columns}
        statement = sql.SQL("INSERT INTO jobs ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(sql.Placeholder() * len(values)),
        )
        self.conn.execute(statement, list(values.values()))
        return job_id

    def source(self, job_id: UUID) -> Path:
        return self.uploads / f"{job_id}.pdf"

    def result(self, job_id: UUID) -> Path:
        """Where it is, or a copy of it beside the directories."""
        location = str(self.row(job_id)["result_path"]) if Documents.fetch else ""
        if Documents.fetch is None or not location.startswith("s3://"):
            return self.results / f"{job_id}.xml"
        copy = self.results.parent / f"fetched-{job_id}.xml"
        Documents.fetch(location, copy)
        return copy

    def row(self, job_id: UUID) -> Row:
        row = self.conn.execute("SELECT * FROM jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return row

    def events(self, job_id: UUID) -> list[Row]:
        query = "SELECT event_type, at, meta FROM job_events WHERE job_id = %s ORDER BY id"
        return self.conn.execute(query, [job_id]).fetchall()

    def story(self, job_id: UUID) -> str:
        """The types of its events in their order, as one line."""
        return " ".join(event["event_type"] for event in self.events(job_id))

    def wait_for(self, job_id: UUID, *statuses: str, timeout: float = WAIT_SECONDS) -> Row:
        """Its row, once its status is one of these; terminal, unless told otherwise."""
        wanted = list(statuses or DONE)
        query: LiteralString = "SELECT * FROM jobs WHERE id = %s AND status = ANY (%s)"
        return wait_for_row(self.conn, query, [job_id, wanted], timeout)

    def wait_for_all(self, job_ids: Iterable[UUID], *statuses: str, timeout: float = WAIT_SECONDS) -> None:
        ids, wanted = list(job_ids), list(statuses or DONE)
        query = "SELECT count(*) AS count FROM jobs WHERE id = ANY (%s) AND status <> ALL (%s)"

        def none_is_left() -> bool:
            left = self.conn.execute(query, [ids, wanted]).fetchone()
            return left is not None and left["count"] == 0

        eventually(none_is_left, timeout, f"all {len(ids)} jobs {wanted}")

    def wait_for_event(self, job_id: UUID, event_type: str, count: int = 1, timeout: float = WAIT_SECONDS) -> Row:
        """The `count`th event of this type."""
        query: LiteralString = (
            "SELECT event_type, at, meta FROM job_events WHERE job_id = %s AND event_type = %s"
            " ORDER BY id OFFSET %s LIMIT 1"
        )
        return wait_for_row(self.conn, query, [job_id, event_type, count - 1], timeout)

    def now(self) -> datetime:
        """By the database's clock."""
        row = self.conn.execute("SELECT clock_timestamp() AS now").fetchone()
        assert row is not None
        now: datetime = row["now"]
        return now

    def servers(self) -> list[Row]:
        return self.conn.execute("SELECT * FROM servers ORDER BY started_at").fetchall()

    def temporary_files(self) -> list[Any]:
        """What an attempt leaves in the result directory besides results."""
        return [path.name for path in self.results.iterdir() if path.suffix != ".xml"]

    def wait_until_tidy(self) -> None:
        """A temporary file is removed after the commit that made it needless, so shortly after the row changes."""
        eventually(lambda: self.temporary_files() == [], what="no temporary file is left")


def source_of(content: bytes) -> OpenSource:
    """An open source, as a store gives it to the worker."""
    return OpenSource(io.BytesIO(content), len(content))
