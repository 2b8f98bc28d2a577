"""The table that a storm ends with: faults, jobs, retries and recovery times, as markdown."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.chaos.cluster import Cluster
from tests.chaos.faults import Injected
from tests.chaos.faulty_gateway import LIMITS, FaultyGateway
from tests.chaos.plan import SHAPES, Kind
from tests.waiting import Row

#: Recovery is counted in one of two ways.
#: When a fault takes a job out of a worker's hands: from the fault until that job is `processing` again (or complete).
RUNS_AGAIN = {
    Kind.KILL_WORKER,
    Kind.KILL_SUPERVISOR,
    Kind.PAUSE_WORKER_PAST_LEASE,
    Kind.PAUSE_HOST,
}
#: Else: from the end of the fault until the next completion. On this one host where the fault was its
#: own; on any where it was everybody's.
#: Faults overlap. A recovery during which another fault struck the same host, or everybody, is shown apart.
EVERYBODYS = {
    Kind.RESTART_FAST,
    Kind.RESTART_IMMEDIATE,
    Kind.OUTAGE,
    Kind.FREEZE,
    Kind.SWALLOW_ALL,
    Kind.STALL_STANDBY,
    Kind.LOCK_ROW,
    Kind.MIGRATE,
    Kind.END_BACKENDS,
    Kind.FILL_DISK,
    Kind.GATEWAY_DOWN,
    Kind.KILL_STORAGE,
    Kind.FREEZE_STORAGE,
    Kind.REFUSE_STORAGE,
}
#: These must stop nobody while they last: the time runs from their beginning.
STOPS_NOBODY = {Kind.LOCK_ROW, Kind.MIGRATE}


@dataclass(frozen=True)
class Step:
    at: float
    job: UUID
    kind: str
    host: int | None


@dataclass(frozen=True)
class Recovery:
    seconds: float
    alone: bool  # no other fault was on the same host


class Timeline:
    def __init__(self, cluster: Cluster, events: Mapping[UUID, Sequence[Row]], injected: Sequence[Injected]) -> None:
        self._injected = injected
        self.steps = sorted(
            (
                Step(event["at"].timestamp(), job, event["event_type"], _host(cluster, event["meta"].get("worker")))
                for job, of_job in events.items()
                for event in of_job
            ),
            key=lambda step: step.at,
        )

    def recoveries(self, injected: Injected) -> list[Recovery]:
        if injected.fault.kind in RUNS_AGAIN:
            since, found = injected.began, [self._runs_again(job, injected.began) for job in injected.running_jobs]
        else:
            since = injected.began if injected.fault.kind in STOPS_NOBODY else injected.ended
            host = None if injected.fault.kind in EVERYBODYS else injected.fault.host
            found = [self._next_completion(since, host)]
        return [Recovery(time, self._was_alone(injected, since + time)) for time in found if time is not None]

    def _was_alone(self, injected: Injected, until: float) -> bool:
        def meets(other: Injected) -> bool:
            everybodys = {injected.fault.kind, other.fault.kind} & EVERYBODYS
            same_place = everybodys or injected.fault.host == other.fault.host
            return bool(same_place) and other.began < until and other.ended > injected.began

        return not any(meets(other) for other in self._injected if other is not injected)

    def _runs_again(self, job: UUID, since: float) -> float | None:
        """A job that was cancelled instead does not count: nobody wants it to run again."""
        for step in self.steps:
            if step.at > since and step.job == job and step.kind in ("processing", "complete", "cancelled"):
                return step.at - since if step.kind != "cancelled" else None
        return None

    def _next_completion(self, since: float, host: int | None) -> float | None:
        for step in self.steps:
            if step.at > since and step.kind == "complete" and host in (None, step.host):
                return step.at - since
        return None


def _host(cluster: Cluster, worker: str | None) -> int | None:
    return cluster.host_of(int(worker.split(":")[1])) if worker else None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def recovery_table(timeline: Timeline, injected: Sequence[Injected], skipped: Mapping[Kind, str]) -> str:
    by_kind: defaultdict[Kind, list[Injected]] = defaultdict(list)
    for fault in injected:
        by_kind[fault.fault.kind].append(fault)
    rows = []
    for kind in SHAPES:
        found = [recovery for fault in by_kind[kind] for recovery in timeline.recoveries(fault)]
        alone = [recovery.seconds for recovery in found if recovery.alone]
        figures = [f"{percentile(alone, share):.2f}" for share in (0.5, 0.99, 1)] if alone else ["–"] * 3
        worst = f"{max(recovery.seconds for recovery in found):.2f}" if found else "–"
        times = f"skipped: {skipped[kind]}" if kind in skipped else len(by_kind[kind])
        rows.append([kind, times, len(alone), *figures, len(found) - len(alone), worst])
    columns = ["fault", "times", "recoveries alone", "p50 s", "p99 s", "max s", "with others on top", "max s of all"]
    return table(columns, rows)


def totals_table(
    jobs: Mapping[UUID, Row], events: Mapping[UUID, Sequence[Row]], gateway: FaultyGateway, pauses: int, migrations: int
) -> str:
    seen = Counter(event["event_type"] for of_job in events.values() for event in of_job)
    by_hand = sum(event["meta"].get("reason") == "manual" for of_job in events.values() for event in of_job)
    ended = Counter(str(row["status"]) for row in jobs.values())
    rows = [
        ["jobs submitted", len(jobs)],
        ["complete", ended["complete"]],
        ["failed, all of them poison", ended["failed"]],
        ["cancelled", ended["cancelled"]],
        ["cancels, of jobs that were started over too", seen["cancelled"]],
        ["attempts", seen["processing"]],
        ["gateway requests", len(gateway.requests)],
        *(
            [f"most calls at a time of a gateway with the limit {limit}", gateway.calls.most[name]]
            for name, limit in LIMITS.items()
        ),
        ["pauses of a gateway, an owner or both", pauses],
        ["retries after an error", seen["retry"] - by_hand],
        ["retries by hand", by_hand],
        ["requeued by a supervisor or worker", seen["requeued"]],
        ["reclaimed by another host", seen["reclaimed"]],
        ["migrations applied", migrations],
    ]
    return table(["over the whole storm", "count"], rows)
