"""The listeners for job events in a worker and its supervisor. A new listener is added here, and nowhere else."""

from __future__ import annotations

from convertq.queue.job_events import JobEvents
from convertq.queue.log.job_log import JobLog
from convertq.queue.log.lines import Log


def job_events(log: Log) -> JobEvents:
    return JobEvents(JobLog(log))
