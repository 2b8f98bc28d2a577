"""The states of a job. Which may follow which is written once, in the database: `job_transitions()`."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """The members are in the order in which a job passes through them; their values are those of the table."""

    UPLOADED = "uploaded"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether a job stays in it until somebody starts the job over; in SQL `is_terminal(status)`."""
        return self in (JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.CANCELLED)

    @property
    def is_active(self) -> bool:
        """Whether the job is unfinished; in SQL `is_active(status)`."""
        return not self.is_terminal


ACTIVE = tuple(status for status in JobStatus if status.is_active)
TERMINAL = tuple(status for status in JobStatus if status.is_terminal)
