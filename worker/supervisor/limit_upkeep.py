"""What a supervisor does for limits that are adaptive: once a second it reports what its workers have measured."""

from __future__ import annotations

import time

from convertq.queue.adaptive_limit import Sample
from convertq.queue.database.database import Database
from convertq.queue.limits import keep_up_limits
from convertq.worker.supervisor.status_table import WorkerStatusTable

#: The supervisor's loop takes a second when nothing happens: with a whole one, every second pass would be left out.
REPORT_EVERY_SECONDS = 0.9


class LimitUpkeep:
    def __init__(self, status_table: WorkerStatusTable) -> None:
        self._status_table = status_table
        self._reported = {gateway: Sample() for gateway in status_table.meters}
        self._report_at = 0.0

    def keep_up(self, database: Database) -> None:
        if not self._reported or time.monotonic() < self._report_at:
            return
        self._report_at = time.monotonic() + REPORT_EVERY_SECONDS
        measured = {gateway: self._measure(gateway) for gateway in self._reported}
        keep_up_limits(database, {gateway: new for gateway, (_, new) in measured.items()})
        self._reported = {gateway: total for gateway, (total, _) in measured.items()}

    def _measure(self, gateway: str) -> tuple[Sample, Sample]:
        """Of all workers together: everything so far, and what was not reported yet."""
        total = Sample()
        for meter in self._status_table.meters[gateway]:
            total.add(meter.read())
        new = Sample()
        new.add(total)
        new.add(self._reported[gateway], sign=-1)
        return total, new
