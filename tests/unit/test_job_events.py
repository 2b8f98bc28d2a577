"""The log lines of jobs, to the byte: people and programs read them, in this order of fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import (
    AttemptStarted,
    GatewayFailed,
    GatewaySucceeded,
    JobCancelled,
    JobClaimed,
    JobCompleted,
    JobEvent,
    JobEvents,
    JobFailed,
    JobRequeued,
    LeaseExtended,
    LeaseLost,
    RetryScheduled,
    lost_job_reclaimed,
    lost_job_requeued,
)
from convertq.queue.log.formatters import JsonLineFormatter
from convertq.queue.log.job_log import JobLog
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed

from tests.jobs import config

ID = UUID(int=7)


class JobOfKnownDuration(ClaimedJob):
    duration_ms = 42


JOB = JobOfKnownDuration(ID, "host:1:a/1", 2, "m", True, 9, is_trial=False, queued_ms=5)
ELSEWHERE = JobOfKnownDuration(ID, "host:1:a/1", 2, "m", True, 9, is_trial=False, queued_ms=5, route="papers")
OK = Completed("/x", gateway_status=200, gateway_ms=12)
LEFTOVER = Completed("/x")
BUSY = Failure(Code.GW_5XX, "the gateway answered 503", gateway_status=503, gateway_ms=3, called=True)
BROKEN = Failure(Code.GW_5XX, "the connection broke", called=True, gateway_ms=3, detail="reset")
NO_FILE = Failure(Code.IO_ERROR, "the source file cannot be read")
DUE = datetime(2026, 1, 1, tzinfo=UTC)
BACK = {"id": ID, "status": "queued", "attempt": 2, "reason": "lease expired", "holder": "host:2:b/1"}
OVER = BACK | {"status": "failed", "error_code": "UNKNOWN", "error_message": "given up"}
ENVIRONMENT = '"server": "host:1:a", "worker": "host:1:a/1", "environment": "test"'
NAME = f'"job_id": "{ID}"'
END = f'"correlation_id": "{ID}"}}'

LINES: dict[str, tuple[JobEvent, str, str, str]] = {
    "claim": (
        JobClaimed(JOB, "closed"), "INFO", "claim",
        '"status": "processing", "attempt": 2, "queued_ms": 5, "breaker": "closed"',
    ),
    "start": (AttemptStarted(JOB), "INFO", "start", '"status": "processing", "attempt": 2'),
    "gateway_ok": (
        GatewaySucceeded(JOB, OK), "INFO", "gateway_ok",
        '"status": "processing", "attempt": 2, "gateway_ms": 12, "gateway_status": 200',
    ),
    "gateway_error": (
        GatewayFailed(JOB, BROKEN), "WARNING", "gateway_error",
        '"status": "processing", "attempt": 2, "gateway_ms": 3, "gateway_status": null, "error_code": "GW_5XX",'
        ' "error_message": "the connection broke"',
    ),
    "lease_extended": (LeaseExtended(JOB), "INFO", "lease_extended", '"status": "processing", "attempt": 2'),
    "lease_lost": (
        LeaseLost(JOB, "another holder has the job"), "WARNING", "lease_lost",
        '"status": "processing", "attempt": 2, "duration_ms": 42, "reason": "another holder has the job"',
    ),
    "complete": (
        JobCompleted(JOB, OK), "INFO", "complete",
        '"status": "complete", "attempt": 2, "duration_ms": 42, "gateway_ms": 12, "gateway_status": 200',
    ),
    "complete from a leftover": (
        JobCompleted(JOB, LEFTOVER), "INFO", "complete", '"status": "complete", "attempt": 2, "duration_ms": 42',
    ),
    "retry": (
        RetryScheduled(JOB, BROKEN, DUE), "WARNING", "retry",
        '"status": "queued", "attempt": 2, "duration_ms": 42, "error_code": "GW_5XX",'
        ' "error_message": "the connection broke", "gateway_ms": 3, "detail": "reset",'
        ' "retry_after": "2026-01-01T00:00:00+00:00"',
    ),
    "failed after a call": (
        JobFailed(JOB, BUSY, dead_letter=True), "ERROR", "failed",
        '"status": "failed", "attempt": 2, "duration_ms": 42, "error_code": "GW_5XX",'
        ' "error_message": "the gateway answered 503", "gateway_status": 503, "gateway_ms": 3, "dead_letter": true',
    ),
    "failed without a call": (
        JobFailed(JOB, NO_FILE, dead_letter=False), "ERROR", "failed",
        '"status": "failed", "attempt": 2, "duration_ms": 42, "error_code": "IO_ERROR",'
        ' "error_message": "the source file cannot be read", "dead_letter": false',
    ),
    "requeue": (
        JobRequeued(JOB, "shutdown"), "WARNING", "requeue",
        '"status": "queued", "attempt": 2, "duration_ms": 42, "reason": "shutdown"',
    ),
    "start at a gateway of several": (
        AttemptStarted(ELSEWHERE), "INFO", "start", '"status": "processing", "attempt": 2, "gateway": "papers"',
    ),
    "cancelled": (
        JobCancelled(JOB), "INFO", "cancelled", '"status": "cancelled", "attempt": 2, "duration_ms": 42',
    ),
    "a reclaimed job": (
        lost_job_reclaimed(BACK), "WARNING", "reclaim",
        '"status": "queued", "attempt": 2, "reason": "lease expired", "holder": "host:2:b/1"',
    ),
    "a reclaimed job that failed": (
        lost_job_reclaimed(OVER), "ERROR", "failed",
        '"status": "failed", "attempt": 2, "reason": "lease expired", "holder": "host:2:b/1",'
        ' "error_code": "UNKNOWN", "error_message": "given up", "dead_letter": true',
    ),
    "a lost claim that was requeued": (
        lost_job_requeued({**BACK, "reason": "the claim was lost"}), "WARNING", "requeue",
        '"status": "queued", "attempt": 2, "reason": "the claim was lost"',
    ),
}  # fmt: skip


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is logged, without its timestamp."""
    written: list[str] = []
    logger, formatter = logging.getLogger("convertq"), JsonLineFormatter()

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(formatter.format(record).partition(", ")[2])

    monkeypatch.setattr(logger, "handlers", [Keeper()])
    monkeypatch.setattr(logger, "propagate", False)
    logger.setLevel(logging.INFO)
    yield written
    logger.setLevel(logging.NOTSET)


def log() -> Log:
    return Log(config(WORKER_ENVIRONMENT="test"), "host:1:a", "host:1:a/1")


@pytest.mark.parametrize("which", LINES)
def test_every_event_has_its_line(lines: list[str], which: str) -> None:
    event, level, name, fields = LINES[which]
    JobEvents(JobLog(log())).emit(event)
    assert lines == [f'"level": "{level}", "event": "{name}", {ENVIRONMENT}, {NAME}, {fields}, {END}']


def test_a_supervisor_names_the_worker_whose_job_it_requeued(lines: list[str]) -> None:
    JobEvents(JobLog(log())).emit(lost_job_requeued({**BACK, "reason": "worker died"}, worker="host:1:a/9"))
    assert '"worker": "host:1:a/9", "environment": "test"' in lines[0]
    assert lines[0].count('"worker"') == 1


def test_a_level_that_is_off_collects_no_fields(lines: list[str]) -> None:
    class Unread(AttemptStarted):
        def fields(self) -> dict[str, object]:
            raise AssertionError

    logging.getLogger("convertq").setLevel(logging.WARNING)
    JobEvents(JobLog(log())).emit(Unread(JOB))
    assert lines == []


def test_every_listener_hears_every_event_in_order() -> None:
    first: list[JobEvent] = []
    second: list[JobEvent] = []
    events = JobEvents(first.append, second.append)
    sent = [JobClaimed(JOB, "closed"), JobCompleted(JOB, OK)]
    for event in sent:
        events.emit(event)
    assert first == second == sent
