"""The listener that logs one line for each event of a job."""

from __future__ import annotations

from convertq.queue.job_events import JobEvent
from convertq.queue.log.lines import Log


class JobLog:
    def __init__(self, log: Log) -> None:
        self._log = log

    def __call__(self, event: JobEvent) -> None:
        if self._log.is_enabled(event.name):
            self._log.write(event.name, event.fields())
