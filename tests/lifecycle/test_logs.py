"""The log of a worker: every event is logged, each as one whole line with its server, worker and job."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres
from psycopg.rows import dict_row

from tests.conftest import SETTINGS, Dirs, migrate
from tests.documents import Documents
from tests.gateway_behaviours import delayed, silent, status
from tests.lifecycle.conftest import pid_of_holder, wait_for_call
from tests.processes import Event, Process
from tests.stand_in_gateway import StandInGateway

EVENTS = [
    "worker_start",
    "ready",
    "reclaim",
    "claim",
    "start",
    "gateway_ok",
    "gateway_error",
    "complete",
    "retry",
    "failed",
    "requeue",
    "lease_extended",
    "lease_lost",
    "breaker_open",
    "breaker_closed",
    "held",
    "db_down",
    "db_up",
    "worker_died",
    "shutdown",
]
ABOUT_A_JOB = [
    "reclaim",
    "claim",
    "start",
    "gateway_ok",
    "gateway_error",
    "complete",
    "retry",
    "failed",
    "requeue",
    "lease_extended",
    "lease_lost",
]
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PASSWORD = "corr:ect h/orse"
FORGED = 'a.pdf\n{"event": "forged"}\r\n\x1b[2J\u2028"event": "forged", \x00'.replace("\x00", "")
SETTINGS_HERE = {
    "WORKER_ENVIRONMENT": 'blue "1"\u20ac',
    "WORKER_LEASE_TTL_SEC": "4",
    "WORKER_LEASE_EXTEND_SEC": "1",
    "WORKER_SHUTDOWN_GRACE_SEC": "0",
    "CIRCUIT_WINDOW": "4",
    "CIRCUIT_FAIL_THRESHOLD": "0.5",
    "RETRY_MAX_ATTEMPTS": "2",
}


class Life:
    """One supervisor, led through everything that can happen to it."""

    def __init__(self, process: Process, documents: Documents, gateway: StandInGateway) -> None:
        self.process, self.documents, self.gateway = process, documents, gateway

    def lead(self, abandoned: UUID) -> None:
        self.documents.wait_for(abandoned, "complete")  # reclaim, then an ordinary conversion
        self.have_a_worker_killed()
        self.have_a_lease_stolen()
        self.have_the_breaker_open_and_close()
        self.lose_the_database()
        self.stop_with_a_running_job()

    def have_a_worker_killed(self) -> None:
        job_id = self.documents.upload()
        self.gateway.script_for(job_id, silent())
        self.documents.insert(job_id, original_filename=FORGED)
        wait_for_call(self.gateway, job_id)
        os.kill(pid_of_holder(self.process, self.documents, job_id), signal.SIGKILL)
        self.documents.wait_for(job_id, "complete")

    def have_a_lease_stolen(self) -> None:
        job_id = self.documents.upload()
        self.gateway.script_for(job_id, delayed(5))
        self.documents.insert(job_id)
        wait_for_call(self.gateway, job_id)
        self.process.wait_for_event("lease_extended", job_id=str(job_id))
        self.documents.conn.execute("UPDATE jobs SET leased_by = 'thief/1' WHERE id = %s", [job_id])
        self.process.wait_for_event("lease_lost", job_id=str(job_id))

    def have_the_breaker_open_and_close(self) -> None:
        job_id = self.documents.upload()
        self.gateway.script_for(job_id, status(400))
        self.documents.insert(job_id, mapping=FORGED)  # failed, and its message quotes what is not ours
        self.gateway.script(*[status(503)] * 3)
        self.documents.put_many(3)
        self.process.wait_for_event("breaker_open")
        self.process.wait_for_event("held")
        self.process.wait_for_event("breaker_closed")

    def lose_the_database(self) -> None:
        self.documents.conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%'"
        )
        self.process.wait_for_event("db_down", count=3)
        self.process.wait_for_event("db_up", count=3)

    def stop_with_a_running_job(self) -> None:
        job_id = self.documents.upload()
        self.gateway.script_for(job_id, silent())
        self.documents.insert(job_id)
        wait_for_call(self.gateway, job_id)
        assert self.process.stop() == 0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """All lines of that life."""
    dirs = Dirs(tmp_path_factory.mktemp("uploads"), tmp_path_factory.mktemp("results"))
    with EmbeddedPostgres(port=0) as server, StandInGateway() as gateway:
        migrate(server.url())
        secret = "corr%3Aect%20h%2Forse"
        environment = {
            "PATH": os.environ["PATH"],
            "TZ": "Pacific/Kiritimati",
            **SETTINGS,
            **SETTINGS_HERE,
            "DATABASE_URL": server.url().replace("postgres@", f"postgres:{secret}@"),
            "GATEWAY_URL": gateway.url.replace("http://", f"http://user:{secret}@"),
            "UPLOADS_DIR": str(dirs.uploads),
            "RESULTS_DIR": str(dirs.results),
        }
        with psycopg.connect(server.url(), autocommit=True, row_factory=dict_row) as conn:
            documents = Documents(conn, dirs.uploads, dirs.results)
            abandoned = documents.upload()
            expired = documents.now() - timedelta(minutes=1)
            documents.insert(
                abandoned, status="processing", leased_by="gone/1", lease_expires_at=expired, attempt_count=1
            )
            process = Process("worker", "run", environment=environment)
            try:
                Life(process, documents, gateway).lead(abandoned)
            finally:
                leftovers = process.end()
            assert leftovers == []
        yield process.lines


@pytest.fixture(scope="module")
def logged(log: list[str]) -> list[Event]:
    return [json.loads(line) for line in log]


def test_every_line_is_one_json_object_with_time_event_and_worker(logged: list[Event]) -> None:
    for event in logged:
        timestamp = datetime.fromisoformat(event["timestamp"])
        assert timestamp.utcoffset() == timedelta(0), event
        assert abs(datetime.now(UTC) - timestamp) < timedelta(minutes=5), event
        assert event["level"] in LEVELS
        assert event["event"] in EVENTS
        assert event["environment"] == SETTINGS_HERE["WORKER_ENVIRONMENT"]
        assert re.fullmatch(r"[^:]+:\d+:[0-9a-f]+", event["server"]), event
        assert event["worker"] == "" or event["worker"].startswith(event["server"] + "/"), event


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_told(logged: list[Event], name: str) -> None:
    assert [event for event in logged if event["event"] == name]


@pytest.mark.parametrize("name", ABOUT_A_JOB)
def test_a_line_about_a_job_has_its_id_status_and_attempt(logged: list[Event], name: str) -> None:
    for event in [event for event in logged if event["event"] == name]:
        assert UUID(event["job_id"])
        assert event["correlation_id"] == event["job_id"]
        assert event["status"] in ("queued", "processing", "complete", "failed")
        assert event["attempt"] >= 1


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("claim", {"queued_ms", "breaker"}),
        ("gateway_ok", {"gateway_ms", "gateway_status"}),
        ("gateway_error", {"gateway_ms", "gateway_status", "error_code"}),
        ("complete", {"duration_ms", "gateway_ms", "gateway_status"}),
        ("retry", {"duration_ms", "error_code"}),
        ("failed", {"duration_ms", "error_code"}),
        ("breaker_open", {"breaker"}),
        ("breaker_closed", {"breaker"}),
    ],
)
def test_every_known_field_is_logged(logged: list[Event], name: str, fields: set[str]) -> None:
    for event in [event for event in logged if event["event"] == name]:
        assert fields <= event.keys(), event


def test_names_and_messages_from_outside_cannot_forge_a_line(log: list[str], logged: list[Event]) -> None:
    assert not [event for event in logged if event["event"] == "forged"]
    assert all(line.startswith("{") and line.endswith("}") and line.isprintable() for line in log)


def test_no_secret_is_in_any_line(log: list[str]) -> None:
    everything = "\n".join(log)
    for secret in (PASSWORD, "corr%3Aect", "h%2Forse", "h/orse"):
        assert secret not in everything


def test_each_change_of_the_breaker_is_logged_once(logged: list[Event]) -> None:
    assert len([event for event in logged if event["event"] == "breaker_open"]) == 1
    assert len([event for event in logged if event["event"] == "breaker_closed"]) == 1


def test_nothing_but_a_shutdown_is_the_last_word(logged: list[Event]) -> None:
    assert logged[-1]["event"] == "shutdown"
