"""One slot of the worker pool. Its number is the last part of `leased_by`."""

from __future__ import annotations

from dataclasses import dataclass, field

from convertq.queue.backoff import Backoff
from tenacity import wait_chain, wait_exponential, wait_none

#: Two quick deaths in a row cost no pause; the third costs 1 s, the next ones twice as much each.
QUICK_DEATH_PAUSES = wait_chain(wait_none(), wait_none(), wait_exponential(multiplier=0.25, max=30))


@dataclass
class Slot:
    number: int
    pid: int = 0  # 0: no worker runs in this slot
    started_at: float = 0.0  # by the monotonic clock
    start_at: float = 0.0  # not before this time, by the monotonic clock
    is_leaving: bool = False  # the worker was told to retire, and this slot ends with it
    kill_reason: str = ""  # when the supervisor killed the worker
    backoff: Backoff = field(default_factory=lambda: Backoff(QUICK_DEATH_PAUSES))
