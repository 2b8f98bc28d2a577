"""What a completion writes, and what comes back from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from convertq.queue.claim import Claim
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed


class FinishedJob(NamedTuple):
    """A job whose result is ready to be published."""

    job: ClaimedJob
    outcome: Completed

    def parameters(self, retention_days: int) -> dict[str, Any]:
        return {
            **self.job.fence, "result_path": self.outcome.location, "retention_days": retention_days,
            "event": json.dumps(self.event),
        }  # fmt: skip

    @property
    def event(self) -> dict[str, Any]:
        """The meta of its `complete` event: what is known."""
        known = {
            "worker": self.job.holder, "attempt": self.job.attempt, "duration_ms": self.job.duration_ms,
            "gateway_ok": self.outcome.gateway_ok, "gateway_status": self.outcome.gateway_status,
            "gateway_ms": self.outcome.gateway_ms,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value is not None}


@dataclass
class Completion:
    """`is_leased` is False when another holder has the job: its result must not be published then."""

    is_leased: bool
    claim: Claim | None = None  # the next job, if one was to be claimed; known after the commit
