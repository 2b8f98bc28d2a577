"""What a completion writes, and what comes back from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from convertq.queue.claim import Claim
from convertq.queue.database.pipeline import Statement
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed


class FinishedJob(NamedTuple):
    """A job whose result is ready to be published."""

    job: ClaimedJob
    outcome: Completed

    @property
    def written(self) -> dict[str, Any]:
        """What complete_and_claim takes of it: the fence, and what it writes."""
        return {**self.job.fence, "result_path": self.outcome.location, "event": self.event}

    @property
    def event(self) -> dict[str, Any]:
        """The meta of its `complete` event: what is known."""
        known = {
            "worker": self.job.holder, "attempt": self.job.attempt, "duration_ms": self.job.duration_ms,
            "gateway_ok": self.outcome.gateway_ok, "gateway_status": self.outcome.gateway_status,
            "gateway_ms": self.outcome.gateway_ms,
            "gateway": None if self.outcome.gateway_ok is None else self.job.gateway_in_events,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value is not None}


def completion_parameters(finished: Sequence[FinishedJob], retention_days: int) -> dict[str, Any]:
    return {"finished": json.dumps([one.written for one in finished]), "retention_days": retention_days}


@dataclass
class Completion:
    """A job that is not among `leased` has another holder: its result must not be published then."""

    leased: set[UUID]
    at_commit: list[Statement]  # what the caller adds is sent with the COMMIT
    claim: Claim | None = None  # the next jobs, if any were to be claimed; known after the commit
