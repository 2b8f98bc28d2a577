"""`convertq show`: its sentence is true of the queue as it is, also when nobody works any more."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from uuid import UUID

import pytest
from convertq.queue.estimates import MOST_COUNTED_JOBS

from tests.conftest import Environment
from tests.jobs import SERVER, Conn, claimed, insert_job, queue, register_server
from tests.processes import run

LONG_AGO = "yesterday"
Sentence = Callable[..., str]


@pytest.fixture
def sentence(environment: Environment) -> Sentence:
    def sentence(job_id: UUID, **overrides: object) -> str:
        done = run("show", str(job_id), "--json", environment=environment(**overrides))
        assert done.returncode == 0, done.stderr
        said: str = json.loads(done.stdout)["explanation"]
        return said

    return sentence


def test_a_supervisor_that_was_killed_is_not_taken_for_one_that_works(conn: Conn, sentence: Sentence) -> None:
    register_server(conn, last_heartbeat_at=LONG_AGO)
    held, waiting = insert_job(conn, "processing"), insert_job(conn)
    assert "that server's last heartbeat was" in sentence(held)
    assert "convertq worker run" in sentence(held)
    assert "no worker is running" in sentence(waiting)


@pytest.mark.parametrize("status", ["stopped", "dead"])
def test_the_job_of_a_server_that_ended_is_requeued_by_another(conn: Conn, sentence: Sentence, status: str) -> None:
    job_id = insert_job(conn, "processing")
    register_server(conn, status=status, stopped_at="now")
    register_server(conn, "other:1:bbbb")
    assert f"that server is {status}, so any worker requeues it soon" in sentence(job_id)


def test_a_job_whose_server_lives_is_being_converted(conn: Conn, sentence: Sentence) -> None:
    register_server(conn)
    job_id = insert_job(conn, "processing", last_attempt_at="now")
    assert sentence(job_id).startswith(f"being converted by {SERVER}/1, attempt 1 of 3, since ")
    assert "; the gateway has until " in sentence(job_id)


def test_a_holder_that_never_registered_is_judged_by_its_lease_alone(conn: Conn, sentence: Sentence) -> None:
    assert sentence(insert_job(conn, "processing")).startswith("being converted by ")
    late = insert_job(conn, "processing", lease_expires_at=LONG_AGO)
    assert "its lease expired" in sentence(late)


def test_a_queued_job_knows_its_place(conn: Conn, sentence: Sentence) -> None:
    register_server(conn)
    old = insert_job(conn, created_at=LONG_AGO)
    insert_job(conn, created_at=LONG_AGO, retry_after="tomorrow")
    young = insert_job(conn)
    assert ", the first in the queue; the next free worker takes it" in sentence(old)
    assert ", 1 job before it; " in sentence(young)
    insert_job(conn, priority=1)
    assert ", 2 jobs before it; " in sentence(young)
    assert ", 1 job before it; " in sentence(old)


def test_those_before_it_are_counted_up_to_a_bound(conn: Conn, sentence: Sentence) -> None:
    register_server(conn)
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, priority)"
        " SELECT 1, repeat('0', 64), 'queued', 1 FROM generate_series(1, %s)",
        [MOST_COUNTED_JOBS + 1],
    )
    assert f", about {MOST_COUNTED_JOBS + 1} jobs before it; " in sentence(insert_job(conn))


def test_a_job_that_a_busy_gateway_sent_back_says_so(conn: Conn, sentence: Sentence) -> None:
    register_server(conn)
    job = claimed(conn)
    assert queue(conn).requeue_job(job, "busy", 60_000)
    assert sentence(job.id).endswith(", attempt 1 of 3: the gateway was busy")


def test_a_full_disk_is_the_reason_only_where_workers_are(conn: Conn, sentence: Sentence) -> None:
    job_id, full = insert_job(conn), {"RESULTS_MIN_FREE_MB": 10**9}
    register_server(conn, hostname="elsewhere")
    assert "free" not in sentence(job_id, **full).replace("free worker", "")
    register_server(conn, "here:1:bbbb", hostname=socket.gethostname())
    assert "this host claims nothing: less than" in sentence(job_id, **full)
    assert sentence(job_id, **full).endswith("others take it in its turn")
