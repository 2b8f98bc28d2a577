"""Permits: a large pool has few, every one comes back, and no worker waits for one for long."""

from __future__ import annotations

import os
import signal

from convertq.queue.config import read_config
from convertq.queue.log.lines import Log
from convertq.worker.supervisor.permits import LARGE_POOL, PERMITS, Permits
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.wake_up import WakeUp
from convertq.worker.supervisor.worker_pool import WorkerPool

from tests.waiting import WAIT_SECONDS, eventually

LARGE = LARGE_POOL + 1


def taken(permits: Permits) -> list[int]:
    """The slots that get one of the permits that are left."""
    return [slot for slot in range(1, LARGE + 1) if permits.take(slot, wait_seconds=0)]


def test_a_large_pool_has_few_permits_and_each_comes_back_once() -> None:
    permits = Permits(LARGE)
    assert taken(permits) == list(range(1, PERMITS + 1))
    permits.give_back(3)
    permits.give_back(3)
    assert permits.take(LARGE, wait_seconds=0)
    assert not permits.take(3, wait_seconds=0.001), "it goes on without one"
    permits.give_back(3)
    assert not permits.take(3, wait_seconds=0), "what a slot does not hold, it cannot return"


def test_a_pool_of_usual_size_needs_none() -> None:
    assert (Permits(LARGE_POOL).are_needed, Permits(LARGE).are_needed) == (False, True)


def test_a_returned_permit_wakes_a_worker_that_waits() -> None:
    permits = Permits(LARGE)
    taken(permits)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if permits.take(LARGE, WAIT_SECONDS) else 1)
    permits.give_back(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_supervisor_returns_the_permit_of_a_killed_worker() -> None:
    config = read_config({"DATABASE_URL": "postgresql://h/d", "WORKER_CONCURRENCY": "1"})
    table, ready = WorkerStatusTable(LARGE), WakeUp()
    pool = WorkerPool(config, table, Log(config), lambda *_: None, lambda _: None)

    def start(slot: int) -> int:
        pid = os.fork()
        if pid == 0:
            table.permits.take(slot)
            ready.post()
            signal.pause()
        return pid

    def is_reaped() -> bool:
        pool.reap()
        return pool.is_empty

    pool.fill(start)
    eventually(ready.take)
    os.kill(pool.slots[0].pid, signal.SIGKILL)
    eventually(is_reaped)
    assert len(taken(table.permits)) == PERMITS
