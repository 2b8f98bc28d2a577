"""When jobs will probably be done, and their position in the queue: for the commands, the API and the pages.

A job has no estimate when it has ended, is paused, waits for another job or far behind the limit of its owner, is
behind an open breaker, or when no worker is active.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.timestamps import ExtendedTimestamp
from convertq.queue.forecast import Ahead, Forecast, Interruptions, Wait, forecast_running, forecast_waiting
from convertq.queue.service_times import Kind, ServiceTimes
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

#: Positions are exact up to this one. It bounds what is read of the claim's index.
MOST_COUNTED_JOBS = 1000
#: Of so many jobs at most, an estimate is made at a time.
MOST_ESTIMATED_JOBS = 1000
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Estimate:
    """Its fields are public."""

    position: int | None  # None: it is being converted
    starts_at: datetime
    done_at: datetime  # half of such jobs are done by then
    done_by: datetime  # nine of ten are


@dataclass(frozen=True)
class Outlook:
    positions: Mapping[UUID, int]  # of queued jobs, counted from 1
    estimates: Mapping[UUID, Estimate]


class GatewayState(NamedTuple):
    is_open: bool  # its jobs are claimed: its breaker is closed, and it is not paused
    max_calls: int | None
    workers: int
    running: int


@dataclass(frozen=True)
class EstimateModel:
    """What all estimates are made from."""

    times: ServiceTimes
    gateways: Mapping[str, GatewayState]
    workers: int
    median_factor: float
    late_factor: float
    interruptions: Mapping[str, Interruptions]

    @classmethod
    def load(cls, database: Database, config: Config) -> EstimateModel:
        row = database.run("get_estimate_model", heartbeat_timeout=config.worker_heartbeat_timeout_sec)[0]
        gateways = {
            each["name"]: GatewayState(each["is_open"], each["max_calls"], int(each["workers"]), each["running"])
            for each in row["gateways"]
        }
        interruptions = {
            name: Interruptions(each["number"], each["seconds"]) for name, each in row["interruptions"].items()
        }
        return cls(
            ServiceTimes(row["services"]), gateways, int(row["workers"]), row["median_factor"], row["late_factor"],
            interruptions,
        )  # fmt: skip

    @property
    def open_routes(self) -> list[str]:
        return [name for name, gateway in self.gateways.items() if gateway.is_open]

    def is_worked_on(self, route: str) -> bool:
        return route in self.gateways and self.gateways[route].workers > 0

    def wait_for(self, kind: Kind, ahead: Ahead) -> Wait:
        """Workers take the jobs of all routes in order; a gateway with a limit makes its own jobs wait for a slot."""
        route, gateway, mean = kind.gateway, self.gateways[kind.gateway], self.times.of(*kind[:1]).work_seconds
        running = sum(each.running for each in self.gateways.values())
        wait = Wait.for_place(
            sum(ahead.jobs.values()), running, sum(ahead.seconds.values()), sum(ahead.variance.values()),
            max(self.workers, 1), mean,
        )  # fmt: skip
        if gateway.max_calls is None:
            return wait
        own = (ahead.jobs.get(route, 0), gateway.running, ahead.seconds.get(route, 0.0), ahead.variance.get(route, 0.0))
        return max(wait, Wait.for_place(*own, gateway.max_calls, mean))

    def adjusted(self, raw: Forecast) -> Forecast:
        """With the factors that were learned from earlier estimates."""
        start = raw.start * self.median_factor if raw.start > 0 else raw.start
        median = max(raw.median * self.median_factor, start)
        return Forecast(start, median, max(raw.late * self.late_factor, median))


@dataclass
class PlacedJob:
    """A job with what is claimed before it."""

    row: DictRow
    ahead: Ahead
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        self.kind = Kind(self.row["route"], self.row["mapping"], self.row["size_class"])

    @property
    def jobs_ahead(self) -> int:
        """Of its own route."""
        return self.ahead.jobs.get(self.kind.gateway, 0)


def estimate_jobs(database: Database, config: Config, ids: Sequence[UUID]) -> Outlook:
    """Jobs without an estimate are not among the estimates."""
    if not ids:
        return Outlook({}, {})
    model = EstimateModel.load(database, config)
    placed = place_jobs(database, model, ids)
    positions = {
        job.row["id"]: job.jobs_ahead + 1
        for job in placed
        if job.row["status"] == JobStatus.QUEUED and job.kind.gateway in model.open_routes
    }
    estimates = {
        job.row["id"]: _estimate(model, job, positions.get(job.row["id"])) for job in placed if has_estimate(model, job)
    }
    return Outlook(positions, estimates)


def place_jobs(database: Database, model: EstimateModel, ids: Sequence[UUID]) -> list[PlacedJob]:
    rows = database.run(
        "list_jobs_ahead", ids=list(ids)[:MOST_ESTIMATED_JOBS], routes=model.open_routes, at_most=MOST_COUNTED_JOBS
    )
    placed = list(_place(rows, Ahead(model.times)))
    if far := [job for job in placed if job.jobs_ahead >= MOST_COUNTED_JOBS]:
        _count_far(database, far)
    return placed


def _place(rows: Sequence[DictRow], ahead: Ahead) -> Iterator[PlacedJob]:
    for row in rows:
        if row["id"] is not None:
            yield PlacedJob(row, ahead.copy())
        else:
            ahead.add(Kind(row["route"], row["mapping"], row["size_class"]), row["number"])


def _count_far(database: Database, far: Sequence[PlacedJob]) -> None:
    ids = [job.row["id"] for job in far]
    counted = database.run("list_far_positions", ids=ids, at_most=MOST_COUNTED_JOBS, count_up_to=MOST_COUNTED_JOBS)
    before = {row["id"]: row["number"] for row in counted}
    for job in far:
        job.ahead.add_any(job.kind.gateway, max(before.get(job.row["id"], 0) - job.jobs_ahead, 0))


def has_estimate(model: EstimateModel, job: PlacedJob) -> bool:
    if not model.is_worked_on(job.kind.gateway):
        return False
    if job.row["status"] == JobStatus.PROCESSING:
        return True
    due = job.row["retry_after"]
    is_parked = isinstance(due, ExtendedTimestamp)
    is_open = model.gateways[job.kind.gateway].is_open
    return bool(job.row["status"] == JobStatus.QUEUED and is_open and not is_parked and not job.row["is_paused"])


def forecast_queued(model: EstimateModel, job: PlacedJob) -> Forecast:
    """As of a job that is queued now, whatever its status is."""
    interruptions = model.interruptions.get(job.kind.gateway, Interruptions())
    return forecast_waiting(model.times.of(*job.kind), model.wait_for(job.kind, job.ahead), interruptions)


def _estimate(model: EstimateModel, job: PlacedJob, position: int | None) -> Estimate:
    now, due = job.row["now"], job.row["retry_after"]
    if job.row["status"] == JobStatus.PROCESSING:
        began = job.row["last_attempt_at"] or now
        raw = forecast_running(model.times.of(*job.kind), max((now - began).total_seconds(), 0.0))
    else:
        raw = forecast_queued(model, job)
    expected = model.adjusted(raw)
    # A job that must not begin yet begins when its time has come: it goes before the jobs that came after it.
    not_due = max((due - now).total_seconds() - expected.start, 0.0) if due is not None else 0.0
    return Estimate(position, *(_after(now, not_due + seconds) for seconds in expected))


def _after(now: datetime, seconds: float) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return END_OF_TIME


def as_document(estimate: Estimate | None, status: str) -> dict[str, Any] | None:
    """As JSON shows it, beside the status. The job was read before: if it is claimed by now, it was the first."""
    if estimate is None:
        return None
    position = (estimate.position or 1) if status == JobStatus.QUEUED else None
    return {**vars(estimate), "position": position}
