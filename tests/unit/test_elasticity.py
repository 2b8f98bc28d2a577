"""When an elastic pool grows and shrinks, and which workers leave it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from convertq.queue.config import read_config
from convertq.queue.log.lines import Log
from convertq.worker.supervisor.elasticity import PoolElasticity
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable
from convertq.worker.supervisor.worker_pool import WorkerPool

from tests.waiting import eventually

BUSY = WorkerStatus(connected=True, busy=True, held=False, deadline=0, jobs=0)
IDLE = WorkerStatus(connected=True, busy=False, held=False, deadline=0, jobs=0, idle=True)


class Stage:
    """A pool of 1..3 whose workers are processes that wait for their signal, at a time that the test sets."""

    def __init__(self) -> None:
        config = read_config({"DATABASE_URL": "postgresql://localhost/x", "WORKER_CONCURRENCY": "1..3"})
        self.table, self.requeued, self.has_job, self.now = WorkerStatusTable(3), list[int](), False, 1000.0
        log = Log(config)
        self.pool = WorkerPool(config, self.table, log, lambda slot, *_: self.requeued.append(slot), lambda slot: None)
        self._elasticity = PoolElasticity(config.worker_concurrency, self.pool, lambda: self.has_job, log)
        self.pool.fill(self._start)

    def _start(self, number: int) -> int:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
            while True:
                signal.pause()
        return pid

    def after(self, seconds: float, **statuses: WorkerStatus) -> int:
        """The size of the pool, once it was kept up after so long with these statuses: `s1=BUSY`."""
        self.now += seconds
        for name, status in statuses.items():
            self.table.write(int(name[1:]), status)
        self._elasticity.keep_up()
        self.pool.fill(self._start)
        return self.pool.size

    @property
    def next_at(self) -> float:
        return self._elasticity.next_at - self.now


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage()
    monkeypatch.setattr("convertq.worker.supervisor.elasticity.time.monotonic", lambda: stage.now)
    yield stage
    for pid in filter(None, [slot.pid for slot in stage.pool.slots]):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def grown(stage: Stage) -> None:
    """All three workers are busy."""
    stage.has_job = True
    stage.after(0, s1=BUSY)
    assert [stage.after(0.2), stage.after(0.2, s2=BUSY), stage.after(0.2, s3=BUSY)] == [2, 3, 3]
    stage.has_job = False


def test_it_grows_by_one_when_a_job_waits_at_two_checks_while_all_are_busy(stage: Stage) -> None:
    stage.has_job = True
    assert [stage.after(0, s1=IDLE), stage.after(2), stage.after(2)] == [1, 1, 1]
    assert stage.next_at == float("inf")
    assert stage.after(0, s1=BUSY) == 1
    assert stage.next_at == pytest.approx(0.1)
    stage.has_job = False
    assert stage.after(0.2) == 1
    assert stage.next_at == pytest.approx(1.0)
    stage.has_job = True
    assert [stage.after(1.1), stage.after(0.05), stage.after(0.1)] == [1, 1, 2]


def test_it_waits_for_the_new_worker_and_ends_at_its_limit(stage: Stage) -> None:
    stage.has_job = True
    stage.after(0, s1=BUSY)
    assert [stage.after(0.2), stage.after(0.2), stage.after(0.2)] == [2, 2, 2]
    assert [stage.after(0.2, s2=BUSY), stage.after(0.2, s3=BUSY), stage.after(2)] == [3, 3, 3]
    assert stage.next_at == float("inf")


def test_a_host_that_must_not_claim_does_not_grow(stage: Stage) -> None:
    stage.has_job = True
    stage.after(0, s1=BUSY._replace(busy=False, held=True))
    assert [stage.after(2), stage.after(2)] == [1, 1]


def test_workers_without_a_job_leave_after_a_minute_and_busy_ones_stay(stage: Stage) -> None:
    grown(stage)
    assert [stage.after(50, s1=IDLE, s2=IDLE), stage.after(9)] == [3, 3]
    assert stage.after(2) == 1
    assert [(slot.number, slot.is_leaving) for slot in stage.pool.slots] == [(1, True), (2, True), (3, False)]

    def is_reaped() -> bool:
        stage.pool.reap()
        return len(stage.pool.slots) == 1

    eventually(is_reaped, what="the exit of both")
    assert [slot.number for slot in stage.pool.slots] == [3]
    stage.has_job = True
    stage.after(2)
    assert stage.after(0.2) == 2
    assert [slot.number for slot in stage.pool.slots] == [1, 3]


def test_a_worker_that_finishes_a_job_before_it_leaves_keeps_its_slot(stage: Stage) -> None:
    grown(stage)
    for slot in stage.pool.slots:
        os.kill(slot.pid, signal.SIGSTOP)  # so that none of them can leave
    assert stage.after(61, s1=IDLE, s2=IDLE) == 1
    stage.has_job = True
    assert [stage.after(2, s1=BUSY, s2=BUSY), stage.after(0.2), stage.after(0.2)] == [1, 1, 1]
    assert [slot.number for slot in stage.pool.slots] == [1, 2, 3]


def test_as_many_stay_as_were_busy_at_once_within_the_last_minute(stage: Stage) -> None:
    grown(stage)
    stage.after(30, s1=IDLE)
    assert stage.after(40, s2=IDLE) == 2
    assert stage.after(61) == 1


def test_a_worker_that_dies_while_it_leaves_is_replaced_and_its_job_requeued(stage: Stage) -> None:
    grown(stage)
    for slot in stage.pool.slots:
        os.kill(slot.pid, signal.SIGSTOP)  # so that none of them can leave
    stage.after(61, s1=IDLE, s2=IDLE)
    leaving = next(slot for slot in stage.pool.slots if slot.is_leaving)
    os.kill(leaving.pid, signal.SIGKILL)

    def is_reaped() -> bool:
        stage.pool.reap()
        return not leaving.pid

    eventually(is_reaped, what="its end")
    assert stage.requeued == [leaving.number]
    assert leaving in stage.pool.slots
    assert not leaving.is_leaving
