"""Owns the builders of the queue's tests: jobs in any state, a holder that claims them, and what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar, cast
from uuid import UUID, uuid4

import psycopg
from convertq.worker.config import Config, read_config
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import BoundedConnection, Database
from convertq.worker.errors import Code, Failure
from convertq.worker.files import Files
from convertq.worker.gateway_client import GatewayClient, route_to_gateway
from convertq.worker.job import Job
from convertq.worker.job_queue import Gate, JobQueue
from convertq.worker.outcome import Completed, Failed, RetryLater
from psycopg import sql

from tests.conftest import Connect, Dirs
from tests.waiting import Row, eventually

Conn = psycopg.Connection[Row]
T = TypeVar("T")

SERVER = "host:1:aaaa"
HOLDER = f"{SERVER}/1"
PDF = b"%PDF-1.4\n%%EOF\n"
#: what the table asks of a row in each state
FITTING: dict[str, dict[str, Any]] = {
    "uploaded": {},
    "queued": {},
    "processing": {"leased_by": HOLDER, "lease_expires_at": "tomorrow", "attempt_count": 1},
    "complete": {"completed_at": "now"},
    "failed": {"error_code": "UNKNOWN", "failed_at": "now"},
}


# -- making --


def config(**variables: object) -> Config:
    given = {"DATABASE_URL": "postgresql://localhost/x", "GATEWAY_URL": "http://gateway.invalid", **variables}
    return read_config({name: str(value) for name, value in given.items()})


def client_of(config: Config) -> GatewayClient:
    return GatewayClient(config, route_to_gateway(config))


def insert_job(conn: Conn, status: Any = "queued", **columns: Any) -> UUID:
    """A job as another program would write it: one plain INSERT."""
    given = {"bytes": 15, "sha256": uuid4().hex * 2, "status": status, **FITTING.get(str(status), {}), **columns}
    statement = sql.SQL("INSERT INTO jobs ({}) VALUES ({}) RETURNING id").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Placeholder, given))
    )
    row = conn.execute(statement, given).fetchone()
    assert row is not None
    return cast(UUID, row["id"])


def queued_job(conn: Conn, dirs: Dirs, pdf: bytes = PDF, **columns: Any) -> UUID:
    """A queued job with its PDF on disk; the file is there before the row."""
    job_id = uuid4()
    source = Files(dirs.uploads, dirs.results).source(job_id)
    source.write_bytes(pdf)
    return insert_job(conn, id=job_id, bytes=len(pdf), upload_path=str(source), **columns)


def register_server(conn: Conn, server: str = SERVER, **columns: Any) -> str:
    run(
        conn,
        "register_server",
        server=server,
        hostname="host",
        pid=1,
        version="1",
        environment="test",
        concurrency=1,
    )
    for column, value in columns.items():
        change = sql.SQL("UPDATE servers SET {} = %s WHERE id = %s").format(sql.Identifier(column))
        conn.execute(change, [value, server])
    return server


def set_status(conn: Conn, job_id: UUID, status: str) -> None:
    """As another program would: one plain UPDATE of what the table asks for, and not a word about events."""
    columns = dict.fromkeys(["leased_by", "lease_expires_at", "error_code", "result_path"]) | {"dead_letter": False}
    columns |= {"status": status} | {name: value for name, value in FITTING[status].items() if name != "attempt_count"}
    change = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in columns)
    conn.execute(sql.SQL("UPDATE jobs SET {} WHERE id = %(id)s").format(change), {**columns, "id": job_id})


# -- acting as a worker --


def database(conn: Conn, schema: str = "public") -> Database:
    return Database(cast(BoundedConnection, conn), schema)


@contextmanager
def open_database(url: str) -> Iterator[Database]:
    """As a worker opens it, with all its limits."""
    opened = Database.open(parse_database_url(url), "convertq:tests")
    try:
        yield opened
    finally:
        opened.close()


def run(conn: Conn, statement: str, /, **parameters: Any) -> list[Row]:
    """The rows of a file in sql/queries."""
    return database(conn).run(statement, **parameters)


def queue(conn: Conn, **settings: object) -> JobQueue:
    return JobQueue(database(conn), config(**settings))


def ask(conn: Conn, holder: str = HOLDER) -> tuple[Job | None, Gate]:
    """One claim by a worker that has just started, of a server that is registered if it was not."""
    server = holder.rpartition("/")[0]
    if not conn.execute("SELECT FROM servers WHERE id = %s", [server]).fetchall():
        register_server(conn, server)
    return queue(conn).claim_job(server, holder)


def claim(conn: Conn, holder: str = HOLDER) -> Job:
    job, _ = ask(conn, holder)
    assert job is not None, "there was nothing to claim"
    return job


def claimed(conn: Conn, holder: str = HOLDER, **columns: Any) -> Job:
    """A job of its own, in the hands of `holder`."""
    job_id = insert_job(conn, **{"priority": 1000, **columns})
    job = claim(conn, holder)
    assert job.id == job_id
    return job


def complete(conn: Conn, job: Job, **outcome: Any) -> bool:
    return queue(conn).complete_job(job, Completed(None, **outcome), "/results/x.xml")


def retry_later(conn: Conn, job: Job, delay_ms: int = 60_000, failure: Failure | None = None) -> bool:
    failed = failure or Failure(Code.GW_5XX, "the gateway answered 503", called=True)
    return queue(conn).schedule_retry(job, RetryLater(failed, delay_ms)) is not None


def fail(conn: Conn, job: Job, failure: Failure | None = None, *, dead_letter: bool = False) -> bool:
    failed = failure or Failure(Code.GW_4XX, "the gateway answered 400", called=True)
    return queue(conn).fail_job(job, Failed(failed, dead_letter))


def expire_lease(conn: Conn, job: Job) -> None:
    conn.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE id = %s", [job.id])


def lose_lease(conn: Conn, job: Job, to: str = "host:2:bbbb/1") -> Job:
    """Reclaimed from its holder and claimed by another."""
    expire_lease(conn, job)
    assert [row["id"] for row in queue(conn, RETRY_MAX_ATTEMPTS=9).reclaim_jobs()] == [job.id]
    taken = claim(conn, to)
    assert taken.id == job.id
    return taken


# -- the breaker --


def set_breaker(conn: Conn, state: str, **columns: Any) -> None:
    """In any state; a probe of an open one is not due."""
    given = {
        "state": state, "opened_at": None if state == "closed" else "now", "by_hand": False,
        "probe_after": "tomorrow", "probe_by": None, "trial_job": None, **columns,
    }  # fmt: skip
    change = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in given)
    conn.execute(sql.SQL("UPDATE circuit_breaker SET {}").format(change), given)


def breaker(conn: Conn) -> Row:
    return one(conn, "SELECT * FROM circuit_breaker")


# -- seeing --


def one(conn: Conn, query: LiteralString, *parameters: Any) -> Row:
    row = conn.execute(query, parameters).fetchone()
    assert row is not None
    return row


def row_of(conn: Conn, job: UUID | Job) -> Row:
    return one(conn, "SELECT * FROM jobs WHERE id = %s", job.id if isinstance(job, Job) else job)


def status_of(conn: Conn, job: UUID | Job) -> str:
    return str(row_of(conn, job)["status"])


def events_of(conn: Conn, job: UUID | Job) -> list[str]:
    job_id = job.id if isinstance(job, Job) else job
    return [event["event_type"] for event in run(conn, "list_events", id=job_id)]


def last_event(conn: Conn, job: UUID | Job) -> Row:
    job_id = job.id if isinstance(job, Job) else job
    return run(conn, "list_events", id=job_id)[-1]


def everything(conn: Conn) -> list[Row]:
    """All that a statement could have changed: for the promise that it changed nothing."""
    return [
        row
        for query in (
            "SELECT * FROM jobs ORDER BY id",
            "SELECT * FROM job_events ORDER BY id",
            "SELECT * FROM job_progress ORDER BY job_id",
            "SELECT * FROM circuit_breaker",
        )
        for row in conn.execute(query)
    ]


# -- two at once --


def together(*steps: Callable[[], T]) -> list[T | Exception]:
    """What each returned or raised, all begun at the same moment on threads of their own."""
    barrier = threading.Barrier(len(steps))

    def begin(step: Callable[[], T]) -> T | Exception:
        barrier.wait(10)
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a value for the test to look at
            return error

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(begin, steps))


def begin(step: Callable[[], T]) -> Future[T]:
    """On a thread that the test need not end: its `result` is asked for with a timeout."""
    future: Future[T] = Future()

    def act() -> None:
        try:
            future.set_result(step())
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            future.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    return future


def wait_until_blocked(observer: Conn, waiting: psycopg.Connection[Any], step: Future[Any] | None = None) -> None:
    """Until a statement of `waiting` waits for somebody else's lock; or its `step`, if given, is through without."""
    pid = waiting.info.backend_pid

    def is_blocked() -> bool:
        blocked = one(observer, "SELECT cardinality(pg_blocking_pids(%s)) > 0 AS found", pid)["found"]
        return bool(blocked) or (step is not None and step.done())

    eventually(is_blocked, what="waiting for a lock")


def claim_all(connect: Connect, holder: str) -> list[UUID]:
    """Everything that there is to claim, by one worker on a connection of its own."""
    mine = queue(connect())
    ids = []
    while (job := mine.claim_job(holder.rpartition("/")[0], holder)[0]) is not None:
        ids.append(job.id)
    return ids
