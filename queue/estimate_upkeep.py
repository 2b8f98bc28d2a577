"""What supervisors measure for estimates, behind the events: service times, the queue, and how good estimates were.

One supervisor at a time does it, about once a second while jobs come or go. Each step reads a bounded number of rows,
and no job pays for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.estimates import EstimateModel, PlacedJob, forecast_queued, place_jobs
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

PAUSE_SECONDS = 1.0
IDLE_PAUSE_SECONDS = 2.0
#: Completions that are read at a time, and how many jobs older times count as.
BATCH_COMPLETIONS = 500
REMEMBERED_JOBS = 500
#: The ratio is that of the last 1,000; the factors follow from fewer, so that they adapt sooner.
SCORES = 1000
LEARNED_SCORES = 300
#: Samples of unfinished jobs. The fuller the table, the fewer jobs are added to it: at most 10 at a time.
MOST_SAMPLES = 1000
SAMPLED_SHARE = 100
NEWEST_EVENTS = 500
#: The whole queue is measured rarely: it takes at most a hundredth of one core of the server.
MARKED_JOBS = 200_000
MARKS_PAUSE_SECONDS = 5.0
MARKS_COST = 100
HISTORY_PAUSE_SECONDS = 60.0


class EstimateUpkeep:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._next_at = 0.0

    def keep_up(self, database: Database) -> None:
        if time.monotonic() < self._next_at:
            return
        try:
            measured = measure(database, self._config)
            self._next_at = time.monotonic() + (PAUSE_SECONDS if measured else IDLE_PAUSE_SECONDS)
        except psycopg.errors.InsufficientPrivilege:
            self._next_at = float("inf")  # An older roles.sql did not grant it; everything else goes on.


def measure(database: Database, config: Config) -> bool:
    """Whether there was anything to do, and no other session did it."""
    if database.one("lock_estimates") is None:  # Outside a transaction: an idle queue costs one statement.
        return False
    with database.transaction():
        turn = database.one("lock_estimates")
        if turn is None:
            return False
        database.run("measure_service_times", batch=BATCH_COMPLETIONS, memory=REMEMBERED_JOBS)
        _sample_jobs(database, config, turn)
        if turn["history_is_due"]:
            database.run("measure_interruptions", pause=HISTORY_PAUSE_SECONDS)
        database.run(
            "finish_measuring", seen_event=turn["last_event"], pause=PAUSE_SECONDS, scores=LEARNED_SCORES,
            marks_pause=_measure_queue(database) if turn["marks_are_due"] else None,
        )  # fmt: skip
    return True


def get_covered_ratio(database: Database) -> float | None:
    """None before the first sampled job is complete."""
    ratio: float | None = database.run("get_covered_ratio", scores=SCORES)[0]["ratio"]
    return ratio


def _measure_queue(database: Database) -> float:
    """After how many seconds it is measured again."""
    began = time.monotonic()
    database.run("measure_queue", at_most=MARKED_JOBS)
    return max(MARKS_PAUSE_SECONDS, MARKS_COST * (time.monotonic() - began))


def _sample_jobs(database: Database, config: Config, turn: DictRow) -> None:
    unfinished = database.run("score_samples", scores=SCORES)[0]["open"]
    wanted = -(-(MOST_SAMPLES - unfinished) // SAMPLED_SHARE)
    if wanted <= 0:
        return
    found = database.run("find_new_jobs", seen_event=turn["seen_event"], events=NEWEST_EVENTS, wanted=wanted)
    new = {row["id"]: row for row in found}
    if not new:
        return
    model = EstimateModel.load(database, config)
    placed = place_jobs(database, model, list(new))
    samples = list(_make_samples(model, placed, new))
    if samples:
        database.run("insert_samples", samples=json.dumps(samples, default=str))


def _make_samples(model: EstimateModel, placed: list[PlacedJob], new: dict[Any, DictRow]) -> Iterator[dict[str, Any]]:
    """What a reader was told right after the job was queued. A quick job may have begun, or ended, since then: it gets
    the estimate of a queued one, from that time on."""
    for job in placed:
        row, gateway = new[job.row["id"]], model.gateways.get(job.kind.gateway)
        is_told = gateway is not None and gateway.is_open and gateway.workers > 0 and not job.row["is_paused"]
        if not is_told or job.row["retry_after"] is not None:
            continue
        raw = forecast_queued(model, job)
        since = row["now"] if row["status"] == JobStatus.QUEUED else row["queued_at"]
        yield {
            "job_id": job.row["id"], "run": row["run"], "estimated_at": since,
            "done_by": since + timedelta(seconds=model.adjusted(raw).late),
            "median_seconds": raw.median, "late_seconds": raw.late,
        }  # fmt: skip
