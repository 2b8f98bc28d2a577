"""Load while a primary is lost: a submitter that records what was acknowledged, and an audit of what became of it."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from typing import Protocol, Self
from uuid import UUID

import psycopg
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.store import open_store
from convertq.queue.submission import SubmissionOptions, Submitter

from tests.documents import PDF
from tests.waiting import Row, eventually

PAUSE_SECONDS = 0.02


class Connects(Protocol):
    """Servers of which one is the primary."""

    def connect(self) -> psycopg.Connection[Row]: ...


class SubmittedLoad:
    """`with SubmittedLoad(config)`: submits files one after another, in a thread, also while the primary changes."""

    def __init__(self, config: Config) -> None:
        self.acknowledged: list[UUID] = []
        self.errors: list[str] = []
        self._config, self._store = config, open_store(config)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number, database = 0, None
        while not self._stopping.wait(PAUSE_SECONDS):
            number += 1
            try:
                database = database or Database.open(self._config.database, "convertq:load", reopens=True)
                content = io.BytesIO(PDF + b"%% %d\n" % number)
                options = SubmissionOptions("load", "pt_simon_invoice_v1")
                done = Submitter(database, self._store, self._config).submit(content, f"{number}.pdf", options)
                assert done.id is not None
                self.acknowledged.append(done.id)
            except DATABASE_ERRORS as error:
                self.errors.append(str(error))
                if database is not None:
                    database.close()
                database = None


def count_complete(conn: psycopg.Connection[Row]) -> int:
    row = conn.execute("SELECT count(*) AS n FROM job_events WHERE event_type = 'complete'").fetchone()
    assert row
    return int(row["n"])


def wait_for_completions(pair: Connects, more: int) -> None:
    with pair.connect() as conn:
        wanted = count_complete(conn) + more
        eventually(lambda: count_complete(conn) >= wanted, what=f"{more} more completions")


def seconds_to_first_completion(pair: Connects, promoted_at: float) -> float:
    with pair.connect() as conn:
        before = count_complete(conn)
        eventually(lambda: count_complete(conn) > before, what="a completion after the promotion")
        return time.monotonic() - promoted_at


def lost(pair: Connects, ids: list[UUID], config: Config) -> list[UUID]:
    """Those that are not complete with their result in the store, once every job that is there has ended."""
    with pair.connect() as conn:
        active = "SELECT FROM jobs WHERE status IN ('uploaded', 'queued', 'processing')"
        eventually(lambda: conn.execute(active).rowcount == 0, what="every job has ended")
        found = "SELECT id, result_path FROM jobs WHERE status = 'complete' AND id = ANY (%s)"
        rows = conn.execute(found, [ids]).fetchall()
    store = open_store(config)
    complete = {row["id"] for row in rows if store.has_result(row["id"], row["result_path"])}
    return [job_id for job_id in ids if job_id not in complete]


def completed_twice(pair: Connects) -> list[UUID]:
    with pair.connect() as conn:
        events = conn.execute("SELECT job_id FROM job_events WHERE event_type = 'complete'").fetchall()
    return [job_id for job_id, times in Counter(event["job_id"] for event in events).items() if times > 1]
