"""A result disk that is really full: what cannot be written is not begun, or fails without a retry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.disk import CannotMount, SmallDisk
from tests.conftest import Dirs, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import big
from tests.jobs import Conn, run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import wait_for_row

MEGABYTES = 4


@pytest.fixture
def disk(dirs: Dirs) -> Iterator[SmallDisk]:
    try:
        small = SmallDisk(dirs.results, MEGABYTES).__enter__()
    except CannotMount as reason:
        pytest.skip(str(reason))
    yield small
    small.__exit__()


def test_a_full_disk_holds_the_queue_until_there_is_room(
    disk: SmallDisk, supervisor: Supervisor, documents: Documents, conn: Conn
) -> None:
    disk.fill()
    process = supervisor(RESULTS_MIN_FREE_MB=1, WORKER_CONCURRENCY=1)
    job_id = documents.put()
    assert "less than 1 MB free" in process.wait_for_event("held")["reason"]
    assert documents.story(job_id) == "created queued"
    wait_for_row(conn, "SELECT * FROM queue_events WHERE event_type = 'held'")
    disk.free()
    assert documents.wait_for(job_id)["attempt_count"] == 1
    assert documents.story(job_id) == "created queued processing complete"
    wait_for_row(conn, "SELECT * FROM queue_events WHERE event_type = 'released'")
    held, released = reversed(run(conn, "list_queue_events", limit=10))
    assert "less than 1 MB free" in held["meta"]["reason"]
    assert held["meta"]["server"] == released["meta"]["server"]


def test_a_disk_that_fills_while_a_result_is_written_fails_the_job_once_and_leaves_nothing(
    disk: SmallDisk, supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.script(big(MEGABYTES * 2))
    supervisor(WORKER_CONCURRENCY=1)
    check_failed_once(documents.wait_for(documents.put()))
    assert list(documents.results.iterdir()) == []
    assert documents.wait_for(documents.put())["status"] == "complete"


def test_a_small_result_that_does_not_fit_fails_the_job_once(
    disk: SmallDisk, supervisor: Supervisor, documents: Documents
) -> None:
    disk.fill()
    supervisor(WORKER_CONCURRENCY=1)
    check_failed_once(documents.wait_for(documents.put()))
    disk.free()
    assert list(documents.results.iterdir()) == []


def check_failed_once(row: dict[str, object]) -> None:
    assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "IO_ERROR", False)
    assert row["error_message"] == "the result cannot be written: the disk is full"
    assert row["attempt_count"] == 1
