"""`convertq metrics` and of METRICS_PORT: the right names, true numbers, no harm to workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from convertq.embedded.postgres import EmbeddedPostgres, free_port
from convertq.queue.config import read_config
from convertq.queue.errors import Code, Failure
from convertq.queue.metrics import METRICS as DESCRIBED
from convertq.queue.metrics import metrics_text
from prometheus_client.parser import text_string_to_metric_families

from tests import jobs as make
from tests.conftest import Convertq, Dirs, Environment, Supervisor
from tests.jobs import Conn
from tests.processes import CONSOLE_SCRIPT, Process, pids, run
from tests.unit.test_monitoring_files import METRICS
from tests.waiting import eventually

Samples = dict[str, float]


def samples(text: str) -> Samples:
    """`name{label="value"}` to its number."""
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {name_of(sample.name, sample.labels): sample.value for sample in found}


def name_of(name: str, labels: dict[str, str]) -> str:
    shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{shown}}}" if shown else name


def printed(environment: Environment, **overrides: object) -> Samples:
    done = run("metrics", environment=environment(**overrides))
    assert done.returncode == 0, done.stderr
    return samples(done.stdout)


def insert_score(conn: Conn) -> None:
    """Before the first, the metric of estimates is absent."""
    conn.execute("INSERT INTO estimate_scores (covered, median_ratio, late_ratio) VALUES (true, 1, 1)")


def test_the_names_labels_and_types_are_those_that_are_promised(conn: Conn, environment: Environment) -> None:
    insert_score(conn)
    text = run("metrics", environment=environment()).stdout
    families = list(text_string_to_metric_families(text))
    found = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    assert found == METRICS
    assert text.count("# HELP ") == text.count("# TYPE ") == len(families) == 16
    types = {family.name: family.type for family in families}
    assert types["convertq_gateway_duration_seconds"] == "histogram"
    assert types["convertq_jobs"] == types["convertq_oldest_queued_seconds"] == "gauge"
    assert types["convertq_jobs_failed"] == types["convertq_breaker_open_seconds"] == "counter"


def test_a_fresh_database_shows_zeros_and_not_gaps(environment: Environment) -> None:
    found = printed(environment)
    assert set(found.values()) == {0}
    assert {'convertq_jobs{status="queued"}', 'convertq_servers{status="dead"}'} <= found.keys()
    assert 'convertq_jobs_failed_total{code="GW_5XX"}' in found


def test_the_numbers_are_those_of_what_happened(conn: Conn, environment: Environment) -> None:
    failure = Failure(Code.GW_5XX, "the gateway answered 503", called=True, gateway_ms=3000)
    make.complete(conn, make.claimed(conn), gateway_status=200, gateway_ms=400)
    make.retry_later(conn, make.claimed(conn), failure=failure)
    make.fail(conn, make.claimed(conn), failure)
    make.claimed(conn)
    found = printed(environment)
    expected = {
        'convertq_jobs{status="complete"}': 1,
        'convertq_jobs{status="queued"}': 1,
        'convertq_jobs{status="failed"}': 1,
        'convertq_jobs{status="processing"}': 1,
        'convertq_jobs{status="uploaded"}': 0,
        "convertq_jobs_created_total": 4,
        "convertq_jobs_completed_total": 1,
        'convertq_jobs_failed_total{code="GW_5XX"}': 1,
        "convertq_retries_total": 1,
        'convertq_gateway_duration_seconds_bucket{gateway="default",le="0.25"}': 0,
        'convertq_gateway_duration_seconds_bucket{gateway="default",le="0.5"}': 1,
        'convertq_gateway_duration_seconds_bucket{gateway="default",le="2.5"}': 1,
        'convertq_gateway_duration_seconds_bucket{gateway="default",le="5.0"}': 3,
        'convertq_gateway_duration_seconds_bucket{gateway="default",le="+Inf"}': 3,
        'convertq_gateway_duration_seconds_count{gateway="default"}': 3,
        'convertq_gateway_duration_seconds_sum{gateway="default"}': 6.4,
        "convertq_wanted_workers": 2,  # one runs; the retry needs less than one worker
        'convertq_servers{status="active"}': 1,
    }
    assert {name: value for name, value in found.items() if name in expected} == expected


def test_a_manual_retry_is_no_retry_and_restarts_the_wait(conn: Conn, environment: Environment) -> None:
    job = make.insert_job(conn, "failed", created_at="2020-01-01", queued_at="2020-01-01")
    make.run(conn, "retry_jobs", ids=[job])
    found = printed(environment)
    assert found["convertq_retries_total"] == 0
    assert 0 < found["convertq_oldest_queued_seconds"] < 60


def test_the_oldest_queued_is_the_one_that_waits_longest_whatever_its_priority(
    conn: Conn, environment: Environment
) -> None:
    make.insert_job(conn, priority=9)
    make.insert_job(conn, priority=-9)
    conn.execute("UPDATE jobs SET queued_at = now() - interval '90 s', retry_after = 'tomorrow' WHERE priority = -9")
    assert 90 <= printed(environment)["convertq_oldest_queued_seconds"] < 150


def test_an_open_breaker_shows_and_its_time_adds_up(conn: Conn, environment: Environment) -> None:
    make.set_breaker(conn, "half_open", probe_after="tomorrow")
    conn.execute("UPDATE circuit_breaker SET opened_at = now() - interval '60 s', open_seconds = 1000")
    found = printed(environment)
    assert found['convertq_breaker_open{gateway="default"}'] == 1
    assert 1060 <= found['convertq_breaker_open_seconds_total{gateway="default"}'] < 1120


def test_a_silent_server_counts_as_dead_before_anybody_has_said_so(conn: Conn, environment: Environment) -> None:
    make.register_server(conn, last_heartbeat_at="yesterday")
    found = printed(environment)
    assert found['convertq_servers{status="active"}'] == 0
    assert found['convertq_servers{status="dead"}'] == 1


def test_numbers_do_not_go_back_when_old_events_are_removed(conn: Conn, environment: Environment) -> None:
    make.complete(conn, make.claimed(conn), gateway_status=200, gateway_ms=400)
    before = printed(environment)
    with conn.transaction():
        conn.execute("SELECT set_config('convertq.cleanup', 'on', true)")
        conn.execute("DELETE FROM job_events WHERE is_aggregated(xact_id, id)")
    assert make.one(conn, "SELECT count(*) AS n FROM job_events")["n"] == 0
    assert printed(environment) == before


def test_an_error_code_of_another_program_cannot_forge_a_line(conn: Conn, environment: Environment) -> None:
    make.insert_job(conn, "failed", error_code='x"} 7\nconvertq_jobs_created_total 99')
    found = printed(environment)
    assert found["convertq_jobs_created_total"] == 1
    assert any("99" in name for name in found if name.startswith("convertq_jobs_failed_total"))


def test_who_may_only_read_gets_the_same_numbers(conn: Conn, environment: Environment, database_url: str) -> None:
    make.insert_job(conn)
    read_only = f"{database_url}&options=-c%20default_transaction_read_only%3Don"
    assert printed(environment, DATABASE_URL=read_only)['convertq_jobs{status="queued"}'] == 1


def test_a_label_that_needs_escaping_is_read_back_as_it_was(conn: Conn, environment: Environment) -> None:
    code = 'x"} 7\nwith \\ and "quotes"'
    make.insert_job(conn, "failed", error_code=code)
    text = metrics_text(make.database(conn), read_config(environment())).decode()
    [failed] = [family for family in text_string_to_metric_families(text) if family.name == "convertq_jobs_failed"]
    assert {sample.labels["code"]: sample.value for sample in failed.samples}[code] == 1


def test_every_metric_has_its_kind_its_help_and_its_label(conn: Conn, environment: Environment) -> None:
    make.complete(conn, make.claimed(conn), gateway_status=200, gateway_ms=1_234_567)
    insert_score(conn)
    text = metrics_text(make.database(conn), read_config(environment())).decode()
    described = [line for line in text.splitlines() if line.startswith("#")]
    assert described == [
        line
        for name, metric in DESCRIBED.items()
        for line in (f"# HELP {name} {metric.about}", f"# TYPE {name} {metric.kind}")
    ]
    assert 'convertq_gateway_duration_seconds_sum{gateway="default"} 1234.567' in text.splitlines()
    labels = {name: set(re.findall(rf"^{name}(?:_sum)?{{(\w+)=", text, re.MULTILINE)) for name in DESCRIBED}
    assert labels == {name: {metric.label} if metric.label else set() for name, metric in DESCRIBED.items()}


def test_promtool_accepts_what_is_printed(environment: Environment) -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("promtool is not on PATH: apt-get install prometheus")
    text = run("metrics", environment=environment()).stdout
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_command_does_not_import_what_it_does_not_need(environment: Environment) -> None:
    asked = [sys.executable, "-X", "importtime", CONSOLE_SCRIPT, "metrics"]
    done = subprocess.run(asked, env=environment(), capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "psycopg" in imported
    assert imported.isdisjoint({"requests", "rich", "flask", "curses"})


# -- the file --


def test_the_textfile_is_replaced_whole_and_readable_by_all(
    conn: Conn, environment: Environment, tmp_path: Path
) -> None:
    place = tmp_path / "collector"
    place.mkdir()
    path = place / "convertq.prom"
    path.write_text("old")
    with path.open() as reader:
        done = run("metrics", "--textfile", str(path), environment=environment())
        assert (done.returncode, done.stdout) == (0, "")
        assert reader.read() == "old", "a reader of the old file reads it to its end"
    assert samples(path.read_text()).keys() == printed(environment).keys()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(place.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_one_line(environment: Environment, tmp_path: Path) -> None:
    done = run("metrics", "--textfile", str(tmp_path / "no" / "convertq.prom"), environment=environment())
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_without_a_database_the_old_file_stays(environment: Environment, tmp_path: Path) -> None:
    path = tmp_path / "convertq.prom"
    path.write_text("old")
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/x"
    done = run("metrics", "--textfile", str(path), environment=environment(DATABASE_URL=nowhere))
    assert done.returncode == 69
    assert path.read_text() == "old"


# -- METRICS_PORT --


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def taken_port() -> Iterator[tuple[socket.socket, int]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken, taken.getsockname()[1]


def scrape(port: int) -> Samples:
    answer = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    assert answer.status_code == 200, answer.text
    return samples(answer.text)


def scraped(port: int) -> Samples:
    """As soon as it answers."""

    def answered() -> Samples | None:
        try:
            return scrape(port)
        except (requests.ConnectionError, AssertionError):
            return None

    return eventually(answered, what="a scrape") or {}


def metrics_pid(process: Process) -> int:
    """The child that is not a worker: workers say their pid when they start."""
    workers = {event["pid"] for event in process.events("worker_start")}
    [pid] = [pid for pid in process.children() if pid not in workers]
    return pid


def test_a_supervisor_answers_scrapes_while_it_converts(
    conn: Conn, dirs: Dirs, supervisor: Supervisor, port: int
) -> None:
    process = supervisor(METRICS_PORT=port)
    make.queued_job(conn, dirs)
    process.wait_for_event("complete")
    found = scraped(port)
    assert found["convertq_jobs_completed_total"] == found['convertq_jobs{status="complete"}'] == 1
    assert found['convertq_servers{status="active"}'] == 1
    assert process.stop() == 0


def test_without_a_port_the_children_are_exactly_the_workers(supervisor: Supervisor) -> None:
    process = supervisor(WORKER_CONCURRENCY=3)
    assert len(process.children()) == 3
    assert {event["pid"] for event in process.events("worker_start")} == set(process.children())


def test_a_metrics_process_that_dies_is_replaced_and_no_worker_notices(supervisor: Supervisor, port: int) -> None:
    process = supervisor(METRICS_PORT=port)
    scraped(port)
    dead = metrics_pid(process)
    workers = set(process.children()) - {dead}
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: dead not in pids(), what="the end of the old one")
    scraped(port)
    assert metrics_pid(process) != dead
    assert workers < set(process.children())
    assert process.events("worker_died") == []


def test_it_ends_with_a_supervisor_that_is_killed(supervisor: Supervisor, port: int) -> None:
    process = supervisor(METRICS_PORT=port)
    scraped(port)
    process.send(signal.SIGKILL)
    process.wait()
    eventually(lambda: not process.family(), what="the end of the whole family")


def test_a_port_in_use_is_said_once_and_taken_when_it_is_free(
    conn: Conn, dirs: Dirs, supervisor: Supervisor, taken_port: tuple[socket.socket, int]
) -> None:
    taken, port = taken_port
    process = supervisor(METRICS_PORT=port)
    said = process.wait_for_event("metrics_down")
    assert said["reason"] == f"cannot listen on 127.0.0.1:{port}: address already in use"
    make.queued_job(conn, dirs)
    process.wait_for_event("complete")
    taken.close()
    assert scraped(port)["convertq_jobs_completed_total"] == 1
    assert len(process.events("metrics_down")) == 1


def test_a_database_that_is_down_makes_a_scrape_fail_and_the_next_one_work(
    own_postgres: EmbeddedPostgres, supervisor: Supervisor, port: int
) -> None:
    process = supervisor(DATABASE_URL=own_postgres.url(), METRICS_PORT=port)
    scraped(port)
    own_postgres.stop("immediate")
    answer = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    assert (answer.status_code, answer.text) == (503, "the database is not reachable\n")
    own_postgres.start()
    scraped(port)
    assert not [line for line in process.lines if "Traceback" in line]


def test_a_client_that_says_nothing_keeps_no_scrape_waiting(supervisor: Supervisor, port: int) -> None:
    supervisor(METRICS_PORT=port)
    scraped(port)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        assert scrape(port)


def test_supervisors_aggregate_with_their_heartbeat(conn: Conn, convertq: Convertq) -> None:
    convertq("worker", "run", WORKER_HEARTBEAT_SEC=1).wait_for_event("ready")
    make.insert_job(conn, "uploaded")

    def is_aggregated() -> bool:
        return make.one(conn, "SELECT bool_and(is_aggregated(xact_id, id)) AS done FROM job_events")["done"] is True

    eventually(is_aggregated, what="aggregation")
