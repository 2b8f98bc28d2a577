"""The outcomes of an attempt: how it ended, as a value that is recorded in the row."""

from __future__ import annotations

from dataclasses import dataclass

from convertq.queue.artifact import Artifact
from convertq.queue.errors import Failure
from convertq.queue.store.protocol import PendingResult


@dataclass(frozen=True)
class Completed:
    """The result is converted and checked, and not published yet."""

    location: str  # what the row will name
    result: PendingResult | None = None  # None: an attempt that died has left a whole result there
    gateway_status: int | None = None
    gateway_ms: int | None = None
    artifact: Artifact | None = None  # what `job_artifacts` records with the completion, if anything

    @property
    def gateway_ok(self) -> bool | None:
        """None where no call was made: only calls count for the breaker."""
        return None if self.result is None else True


@dataclass(frozen=True)
class RetryLater:
    failure: Failure
    delay_ms: int


@dataclass(frozen=True)
class Failed:
    failure: Failure
    dead_letter: bool  # True: the error was worth a retry, and no attempt is left


@dataclass(frozen=True)
class Interrupted:
    """The worker has to stop, or cannot convert now: the job goes back to the queue, and the attempt does not count."""

    reason: str
    delay_ms: int = 0  # before the job may be claimed again
    gateway_status: int | None = None  # of the answer of a busy gateway: with one, a trial of its breaker has succeeded


@dataclass(frozen=True)
class Lost:
    """The lease is lost, or could not be kept: nothing may be written, and the job is another holder's."""

    reason: str


@dataclass(frozen=True)
class Cancelled:
    """The job was cancelled: its row says so already, and nothing of the attempt may stay."""


Outcome = Completed | RetryLater | Failed | Interrupted | Lost | Cancelled
