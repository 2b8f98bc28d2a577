"""How many workers the queue needs now: the figure by which an autoscaler adds and removes hosts.

A worker is wanted for each job that runs, and as many more as finish the queued jobs within SCALE_TARGET_SEC, by the
mean service time of the gateway's last jobs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.servers import count_servers

MEASURED_CALLS = 1000
#: Counting more jobs takes longer than the answer is worth.
MOST_COUNTED_JOBS = 1_000_000
#: The service time of a gateway that none of the last calls went to.
UNMEASURED_SECONDS = 1.0
LEAST_SECONDS = 0.001  # durations are whole milliseconds, and a job that waits needs a worker


@dataclass(frozen=True)
class GatewayLoad:
    gateway: str
    breaker: str
    is_paused: bool
    max_calls: int | None  # None: no limit
    running: int
    queued: int  # that could be claimed now or soon, if the gateway may be called
    seconds: float | None  # mean service time
    has_paused_jobs: bool  # of owners who are paused

    @property
    def held_by(self) -> str:
        """Why no job of this gateway can be claimed; empty: nothing holds it."""
        if self.is_paused:
            return f"gateway {self.gateway} is paused"
        state = self.breaker.replace("_", "-")
        return "" if state == "closed" else f"the breaker of gateway {self.gateway} is {state}"

    def wanted(self, target_seconds: float) -> float:
        if self.held_by:
            return self.running
        seconds = UNMEASURED_SECONDS if self.seconds is None else max(self.seconds, LEAST_SECONDS)
        wanted = self.running + self.queued * seconds / target_seconds
        return wanted if self.max_calls is None else max(self.running, min(wanted, self.max_calls))

    def is_limited(self, target_seconds: float) -> bool:
        return self.max_calls is not None and self.queued > 0 and self.wanted(target_seconds) >= self.max_calls


def get_scale(database: Database, config: Config) -> dict[str, Any]:
    """Its keys are public: the operators' API sends them."""
    rows = database.run(
        "measure_load", soon=config.scale_target_sec, counted=MOST_COUNTED_JOBS, calls=MEASURED_CALLS
    )  # fmt: skip
    loads = [GatewayLoad(**row) for row in rows]
    wanted, reason = choose_wanted_workers(loads, config.scale_target_sec)
    return {
        "wanted_workers": wanted,
        "running_workers": count_servers(database, config)["workers"],
        "queued": sum(load.queued for load in loads),
        "reason": reason,
    }


def choose_wanted_workers(loads: Sequence[GatewayLoad], target_seconds: float) -> tuple[int, str]:
    """The number, and the reason in words."""
    running = sum(load.running for load in loads)
    queued = sum(load.queued for load in loads if not load.held_by)
    held_by = [load.held_by for load in loads if load.queued and load.held_by]
    held_by += ["their owners are paused"] if any(load.has_paused_jobs for load in loads) else []
    if not (running or queued):
        return (1, f"every queued job is held: {', '.join(held_by)}") if held_by else (0, "nothing to do")
    # Rounded first: the sum of 0.1 and 0.2 must not need a worker more than 0.3.
    wanted = max(1, math.ceil(round(sum(load.wanted(target_seconds) for load in loads), 6)))
    reasons = [f"{running} running, and {wanted - running} to finish {queued} queued within {target_seconds:g} s"]
    limits = [f"gateway {load.gateway}" for load in loads if load.is_limited(target_seconds)]
    reasons += [f"max_calls limits {', '.join(limits)}"] if limits else []
    return wanted, "; ".join(reasons + held_by)
