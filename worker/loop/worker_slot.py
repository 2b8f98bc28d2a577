"""This worker's slot: its name, and its row in the status table that its supervisor reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from convertq.queue.database.answers import Answers
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable


class WorkerSlot:
    def __init__(self, table: WorkerStatusTable, number: int) -> None:
        self.table, self._number = table, number
        self.meters = {gateway: meters[number - 1] for gateway, meters in table.meters.items()}
        self.jobs_done = 0
        self.is_held_by_disk = False

    @property
    def server_id(self) -> str:
        """It changes while the worker runs, when its supervisor has to register again."""
        return self.table.server_id

    @property
    def holder(self) -> str:
        """The name under which this worker leases jobs."""
        return f"{self.table.server_id}/{self._number}"

    @contextmanager
    def permit(self, pipeline: Answers) -> Iterator[None]:
        """For one transaction of a large pool. It is returned early if the database keeps this worker waiting: then
        the worker waits for a disk, a standby or a lock, and costs nobody a core."""
        if not self.table.permits.take(self._number):
            yield
            return
        pipeline.when_slow = self._give_permit_back
        try:
            yield
        finally:
            pipeline.when_slow = None
            self._give_permit_back()

    def _give_permit_back(self) -> None:
        self.table.permits.give_back(self._number)

    def show_disconnected(self) -> None:
        self._write(connected=False)

    def show_ready(self) -> None:
        self._write()

    def show_idle(self) -> None:
        self._write(idle=True)

    def show_busy(self, deadline: float) -> None:
        """The supervisor kills a worker that passes its deadline (by the monotonic clock)."""
        self._write(busy=True, deadline=deadline)

    @property
    def begun(self) -> list[UUID]:
        """The jobs whose attempt has begun and whose outcome is not recorded: of this worker, or of the one before."""
        return self.table.read_begun(self._number)

    @begun.setter
    def begun(self, ids: Sequence[UUID]) -> None:
        self.table.write_begun(self._number, ids)

    def add_begun(self, job_id: UUID, place: int) -> None:
        """The job that begins now, after `place` others that have begun."""
        self.table.add_begun(self._number, job_id, place)

    @property
    def cancels(self) -> int:
        """How often the supervisor was notified that a job of this worker is cancelled."""
        return self.table.read_cancels(self._number)

    def show_probing(self, deadline: float) -> None:
        self._write(deadline=deadline)

    def _write(self, *, connected: bool = True, busy: bool = False, deadline: float = 0.0, idle: bool = False) -> None:
        status = WorkerStatus(connected, busy, self.is_held_by_disk, deadline, self.jobs_done, idle)
        self.table.write(self._number, status)
