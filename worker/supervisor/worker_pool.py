"""The pool of workers: one slot for each, filled by a fork, emptied by an exit, and filled again.

An elastic pool also gets slots and loses them: see elasticity.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable

from convertq.queue.config import Config
from convertq.queue.log.lines import Log
from convertq.worker.loop.stopping import RETIRE
from convertq.worker.supervisor.slot import Slot
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable

#: A worker that dies sooner after its start, again and again, is replaced with a growing pause.
QUICK_DEATH_SECONDS = 10.0

RequeueJobs = Callable[[int, bool, str], None]  # slot, whether the attempt counts, reason
ReleaseSlots = Callable[[int], None]  # of limited gateways, which the worker of this slot held


class WorkerPool:
    def __init__(
        self, config: Config, status_table: WorkerStatusTable, log: Log, requeue_jobs: RequeueJobs,
        release_slots: ReleaseSlots,
    ) -> None:  # fmt: skip
        self._status_table, self._log = status_table, log
        self._requeue_jobs, self._release_slots = requeue_jobs, release_slots
        self.slots = [Slot(number) for number in range(1, config.worker_concurrency.least + 1)]
        self.jobs_of_ended_workers = 0

    @property
    def is_empty(self) -> bool:
        return not any(slot.pid for slot in self.slots)

    @property
    def size(self) -> int:
        """Without the workers that are leaving."""
        return sum(not slot.is_leaving for slot in self.slots)

    def grow(self) -> None:
        """Adds a slot with the lowest number that is free."""
        used = {slot.number for slot in self.slots}
        self.slots.append(Slot(next(number for number in itertools.count(1) if number not in used)))
        self.slots.sort(key=lambda slot: slot.number)

    def retire(self, count: int) -> int:
        """Ends up to `count` workers that have no job, those with the highest numbers first; returns how many. One that
        claims a job at this moment finishes it first."""
        free = [slot for slot in self.slots if slot.pid and not (slot.is_leaving or self._is_busy(slot))]
        chosen = free[len(free) - min(count, len(free)) :]
        for slot in chosen:
            slot.is_leaving = True
            send_signal(slot, RETIRE)
        return len(chosen)

    def _is_busy(self, slot: Slot) -> bool:
        return self._status_table.read(slot.number).busy

    @property
    def statuses(self) -> list[WorkerStatus]:
        return [self._status_table.read(slot.number) for slot in self.slots]

    @property
    def next_start_at(self) -> float:
        return min((slot.start_at for slot in self.slots if not slot.pid), default=float("inf"))

    def fill(self, start: Callable[[int], int]) -> None:
        """`start` forks the worker of a slot and returns its pid."""
        for slot in self.slots:
            if not slot.pid and slot.start_at <= time.monotonic():
                slot.pid = start(slot.number)
                slot.started_at = time.monotonic()

    def reap(self) -> None:
        for slot in tuple(self.slots):
            if slot.pid:
                pid, status = os.waitpid(slot.pid, os.WNOHANG)
                if pid:
                    self._empty(slot, os.waitstatus_to_exitcode(status))

    def _empty(self, slot: Slot, exit_code: int) -> None:
        """Every exit takes this path: the worker's job is requeued, then another worker starts, unless this one had to
        leave. One that dies before it can leave is replaced too: its successor completes what the death interrupted."""
        self.jobs_of_ended_workers += self._status_table.read(slot.number).jobs
        self._status_table.clear(slot.number)
        self._status_table.permits.give_back(slot.number)
        if exit_code != 0:
            self._handle_death(slot, exit_code)
        self._release_slots(slot.number)
        is_quick_death = exit_code != 0 and time.monotonic() - slot.started_at < QUICK_DEATH_SECONDS
        if not is_quick_death:
            slot.backoff.reset()
        pause_seconds = slot.backoff.next_pause_seconds() if is_quick_death else 0.0
        if slot.is_leaving and exit_code == 0:
            self.slots.remove(slot)
        slot.is_leaving = False
        slot.pid, slot.kill_reason, slot.start_at = 0, "", time.monotonic() + pause_seconds

    def _handle_death(self, slot: Slot, exit_code: int) -> None:
        how = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
        worker = f"{self._status_table.server_id}/{slot.number}"
        self._log("worker_died", worker=worker, pid=slot.pid, reason=slot.kill_reason or how)
        self._requeue_jobs(slot.number, slot.kill_reason != "shutdown", slot.kill_reason or "worker died")

    def kill_overdue(self, stop_by: float | None) -> None:
        """Kills workers beyond their own deadline, and after `stop_by` all of them."""
        now = time.monotonic()
        for slot in self.slots:
            deadline = self._status_table.read(slot.number).deadline
            if slot.pid and not slot.kill_reason and 0 < deadline < now:
                self._kill(slot, "stuck beyond the gateway timeout")
            elif slot.pid and stop_by is not None and stop_by < now:
                self._kill(slot, "shutdown")

    def _kill(self, slot: Slot, reason: str) -> None:
        slot.kill_reason = reason
        send_signal(slot, signal.SIGKILL)


def send_signal(slot: Slot, number: signal.Signals) -> None:
    if slot.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(slot.pid, number)
