"""The builders of the queue's tests: jobs in any state, workers that claim them, and checks of their rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, TypeVar, cast
from uuid import UUID, uuid4

import psycopg
from convertq.queue.breaker import Breaker
from convertq.queue.claim import NO_CLAIM, Claim, ClaimCursor, NextClaim
from convertq.queue.completion import Completion, FinishedJob, completion_parameters
from convertq.queue.config import Config, read_config
from convertq.queue.database.connection import BoundedConnection
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Code, Failure
from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed, Failed, RetryLater
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.gateway.route import routes_to_gateways
from psycopg import sql

from tests.conftest import Connect, Dirs
from tests.files import Files
from tests.waiting import WAIT_SECONDS, Row, eventually

Conn = psycopg.Connection[Row]
T = TypeVar("T")

SERVER = "host:1:aaaa"
HOLDER = f"{SERVER}/1"
PDF = b"%PDF-1.4\n%%EOF\n"
#: what the table requires of a row in each state
FITTING: dict[str, dict[str, Any]] = {
    "uploaded": {},
    "queued": {},
    "processing": {"leased_by": HOLDER, "lease_expires_at": "tomorrow", "attempt_count": 1},
    "complete": {"completed_at": "now"},
    "failed": {"error_code": "UNKNOWN", "failed_at": "now"},
    "cancelled": {"cancelled_at": "now"},
}


# -- making --


def config(**variables: object) -> Config:
    given = {"DATABASE_URL": "postgresql://localhost/x", "GATEWAY_URL": "http://gateway.invalid", **variables}
    return read_config({name: str(value) for name, value in given.items()})


def client_of(config: Config) -> GatewayClient:
    return GatewayClient(routes_to_gateways(config)[DEFAULT_GATEWAY])


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


REGISTRATION: dict[str, Any] = {
    "server": SERVER, "hostname": "host", "pid": 1, "version": "1", "environment": "test", "concurrency": 1,
    "gateways": "[]", "gateways_digest": "", "takes_turns": False, "owner_max_running": 0,
}  # fmt: skip


def register_server(conn: Conn, server: str = SERVER, **columns: Any) -> str:
    run(conn, "register_server", **REGISTRATION | {"server": server})
    for column, value in columns.items():
        change = sql.SQL("UPDATE servers SET {} = %s WHERE id = %s").format(sql.Identifier(column))
        conn.execute(change, [value, server])
    return server


def register_witness(conn: Conn, server: str = "host:9:wwww") -> str:
    """A server with a heartbeat just now, and without a gap for an hour: it can witness that another one is silent."""
    return register_server(conn, server, heard_since=datetime.now(UTC) - timedelta(hours=1))


def set_status(conn: Conn, job_id: UUID, status: str) -> None:
    """As another program would: one plain UPDATE of what the table requires, without an event."""
    columns = dict.fromkeys(["leased_by", "lease_expires_at", "error_code", "result_path"]) | {"dead_letter": False}
    columns |= {"status": status} | {name: value for name, value in FITTING[status].items() if name != "attempt_count"}
    change = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in columns)
    conn.execute(sql.SQL("UPDATE jobs SET {} WHERE id = %(id)s").format(change), {**columns, "id": job_id})


# -- acting as a worker --


def database(conn: Conn, schema: str = "public") -> Database:
    """Over any connection: a plain one gets what the worker's statements need of a bounded one."""
    bounded = cast(BoundedConnection, conn)
    if not isinstance(conn, BoundedConnection):
        bounded.is_pooled, bounded.answer_timeout_seconds = False, BoundedConnection.answer_timeout_seconds
    return Database(bounded, schema)


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


def cursor(conn: Conn, **settings: object) -> ClaimCursor:
    return ClaimCursor(database(conn), config(**settings))


def try_claim(conn: Conn, holder: str = HOLDER) -> Claim:
    """One claim by a worker that has just started, of a server that is registered if it was not."""
    server = holder.rpartition("/")[0]
    if not conn.execute("SELECT FROM servers WHERE id = %s", [server]).fetchall():
        register_server(conn, server)
    return cursor(conn).claim_job(server, holder)


def claim(conn: Conn, holder: str = HOLDER) -> ClaimedJob:
    job = try_claim(conn, holder).job
    assert job is not None, "there was nothing to claim"
    return job


def claimed(conn: Conn, holder: str = HOLDER, **columns: Any) -> ClaimedJob:
    """A new job that `holder` has claimed."""
    job_id = insert_job(conn, **{"priority": 1000, **columns})
    job = claim(conn, holder)
    assert job.id == job_id
    return job


def complete(conn: Conn, job: ClaimedJob, retention_days: int = 30, **outcome: Any) -> bool:
    """The statement alone: there is no file to publish, and nothing is claimed."""
    finished = FinishedJob(job, Completed("/results/x.xml", **outcome))
    [row] = run(conn, "complete_and_claim", **NO_CLAIM, **completion_parameters([finished], retention_days))
    return bool(row["completed"] == [job.id])


def complete_and_claim(
    conn: Conn,
    jobs: ClaimedJob | Sequence[ClaimedJob],
    server: str = SERVER,
    holder: str = HOLDER,
    *,
    outcome: Completed = Completed("/x"),  # noqa: B008 - it cannot be changed
    wanted: int = 1,
    settings: dict[str, Any] | None = None,
) -> Completion:
    """In one commit, with no file to publish."""
    finished = [FinishedJob(job, outcome) for job in ([jobs] if isinstance(jobs, ClaimedJob) else jobs)]
    next_claim = NextClaim(cursor(conn, **settings or {}), server, holder, wanted)
    breaker, mine = Breaker(config(), Log(config())), queue(conn, **settings or {})
    with mine.completing(finished, breaker, next_claim) as completion:
        pass
    return completion


def retry_later(conn: Conn, job: ClaimedJob, delay_ms: int = 60_000, failure: Failure | None = None) -> bool:
    failed = failure or Failure(Code.GW_5XX, "the gateway answered 503", called=True)
    return queue(conn).schedule_retry(job, RetryLater(failed, delay_ms)) is not None


def fail(conn: Conn, job: ClaimedJob, failure: Failure | None = None, *, dead_letter: bool = False) -> bool:
    failed = failure or Failure(Code.GW_4XX, "the gateway answered 400", called=True)
    return queue(conn).fail_job(job, Failed(failed, dead_letter))


def expire_lease(conn: Conn, job: ClaimedJob) -> None:
    conn.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE id = %s", [job.id])


def lose_lease(conn: Conn, job: ClaimedJob, to: str = "host:2:bbbb/1") -> ClaimedJob:
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


def row_of(conn: Conn, job: UUID | ClaimedJob) -> Row:
    return one(conn, "SELECT * FROM jobs WHERE id = %s", job.id if isinstance(job, ClaimedJob) else job)


def status_of(conn: Conn, job: UUID | ClaimedJob) -> str:
    return str(row_of(conn, job)["status"])


def events_of(conn: Conn, job: UUID | ClaimedJob) -> list[str]:
    job_id = job.id if isinstance(job, ClaimedJob) else job
    return [event["event_type"] for event in run(conn, "list_events", id=job_id)]


def last_event(conn: Conn, job: UUID | ClaimedJob) -> Row:
    job_id = job.id if isinstance(job, ClaimedJob) else job
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
    """What each returned or raised, all started at the same time on threads of their own."""
    barrier = threading.Barrier(len(steps))

    def begin(step: Callable[[], T]) -> T | Exception:
        barrier.wait(WAIT_SECONDS)
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - a value for the test to check
            return error

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(begin, steps))


def begin(step: Callable[[], T]) -> Future[T]:
    """On a thread that the test need not end: the test waits for its `result` with a timeout."""
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
    mine = cursor(connect())
    ids = []
    while (job := mine.claim_job(holder.rpartition("/")[0], holder).job) is not None:
        ids.append(job.id)
    return ids


def insert_jobs(conn: Conn, number: int) -> None:
    """So many queued jobs at once, of nobody."""
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status)"
        " SELECT n, lpad(n::text, 64, '0'), 'queued' FROM generate_series(1, %s) AS n",
        [number],
    )


def uncounted_events(conn: Conn) -> int:
    """Events that are not aggregated into the counters yet."""
    behind = one(
        conn,
        "SELECT count(*) FROM job_events, counters_position AS reached"
        " WHERE (job_events.xact_id, job_events.id) > (reached.xact_id, reached.event_id)",
    )
    return int(behind["count"])
