"""What the benchmark's figures rest on: a gateway that counts right, and a check that finds wrong work."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
import requests

from bench import big_history, claimers, fleet, fleet_wake_up, held, pgbouncer, redis, report, throughput
from bench import results as results_module
from bench.contender import ROOT
from bench.contenders import CONTENDERS
from bench.documents import WrongWork, answer, check, lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds
from bench.round import Round
from bench.scenes import SCENES

IDS = [UUID(int=number) for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with null_gateway() as started:
        yield started


def post(gateway: Gateway, job_id: UUID, session: requests.Session, **headers: str) -> requests.Response:
    return session.post(
        f"{gateway.url}/process",
        files={"file": ("x.pdf", os.urandom(20_000), "application/pdf")},
        headers={"X-Correlation-ID": str(job_id), **headers},
        timeout=10,
    )


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_every_upload_is_answered_with_its_own_xml_and_recorded_once(gateway: Gateway, connection: str) -> None:
    gateway.reset()
    with requests.Session() as session:
        for job_id in IDS:
            response = post(gateway, job_id, session, Connection=connection)
            assert response.content == answer(str(job_id).encode())
            assert response.headers["Connection"] == connection
    assert [seen.job_id for seen in gateway.seen()] == [str(job_id) for job_id in IDS]


def test_a_slow_gateway_takes_its_time(gateway: Gateway) -> None:
    gateway.reset(delay=0.3)
    began = time.monotonic()
    with requests.Session() as session:
        assert post(gateway, IDS[0], session).ok
    assert time.monotonic() - began >= 0.3


def test_a_held_gateway_keeps_all_waiting_until_it_is_opened(gateway: Gateway) -> None:
    gateway.reset(hold=True)
    with requests.Session() as session, ThreadPoolExecutor(len(IDS)) as threads:
        calls = [threads.submit(post, gateway, job_id, session) for job_id in IDS]
        gateway.wait_for(len(IDS), timeout=60)
        assert not any(call.done() for call in calls)
        gateway.open()
        assert all(call.result().ok for call in calls)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for job_id in IDS:
        (tmp_path / f"{job_id}.xml").write_bytes(answer(str(job_id).encode()))
    return tmp_path


def test_one_request_and_one_right_file_for_each_job_is_accepted(results: Path) -> None:
    check(IDS, map(str, IDS), results)


@pytest.mark.parametrize("asked", [IDS[:2], [*IDS, IDS[0]], [IDS[0], IDS[1], IDS[1]]])
def test_a_request_too_few_or_too_many_is_found(results: Path, asked: list[UUID]) -> None:
    with pytest.raises(WrongWork):
        check(IDS, map(str, asked), results)


@pytest.mark.parametrize(("name", "content"), [
    (f"{IDS[0]}.xml", answer(str(IDS[1]).encode())),
    (f"{IDS[0]}.xml", answer(str(IDS[0]).encode())[:-1]),
    (".left.part", b""),
])  # fmt: skip
def test_a_wrong_or_left_over_file_is_found(results: Path, name: str, content: bytes) -> None:
    (results / name).write_bytes(content)
    with pytest.raises(WrongWork):
        check(IDS, map(str, IDS), results)


def test_a_missing_file_is_found(results: Path) -> None:
    (results / f"{IDS[0]}.xml").unlink()
    with pytest.raises(WrongWork):
        check(IDS, map(str, IDS), results)


def test_each_job_has_its_own_pdf_of_the_announced_size(tmp_path: Path) -> None:
    ids = lay_out(tmp_path, 5)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(map(str, ids))
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {20_000}


def test_the_cpu_of_children_that_have_ended_is_counted() -> None:
    before = cpu_seconds(os.getpid())
    child = os.fork()
    if child == 0:
        while time.process_time() < 0.2:
            pass
        os._exit(0)
    os.waitpid(child, 0)  # this one: the process may have other children that have ended
    assert cpu_seconds(os.getpid()) - before >= 0.15


def test_a_ratio_is_the_quotient_of_the_two_medians_beside_it() -> None:
    row = report.ratio_at_least("rate", 1.5, [300, 100, 200], [100, 100, 200], "jobs/s")
    assert row.measured == "2.00× (200 and 100 jobs/s; by round 1.00–3.00)"
    assert row.ok


def test_of_a_peers_variants_the_fastest_counts_and_one_that_did_not_run_has_no_row() -> None:
    rates = {"convertq": 100, "PgQueuer": 40, "PgQueuer (blocking)": 50}
    results = {name: [Round(rate, 1.0, 1.0, 1.0)] for name, rate in rates.items()}
    [row] = throughput.rows(results)
    assert row.measure.endswith("against PgQueuer (blocking)")
    assert row.measured == "2.00× (100 and 50.0 jobs/s)"


def test_a_contender_that_cannot_run_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "redis-server" in redis.missing()
    monkeypatch.setattr(CONTENDERS["pg-boss (batches of 50)"], "missing", lambda: "no npm")
    names = ["convertq", "pg-boss (batches of 50)"]
    assert throughput.able(names) == ["convertq"]
    assert throughput.skipped(names) == "Skipped: pg-boss (batches of 50): no npm."


def test_every_peer_says_what_it_does_not_give() -> None:
    assert [name for name, contender in CONTENDERS.items() if not contender.lacks] == ["convertq"]


def test_the_cpu_of_another_server_counts() -> None:
    assert Round(jobs=10, seconds=1.0, cpu=1.0, postgres_cpu=2.0, other_cpu=3.0).cpu_per_job == pytest.approx(0.6)


def test_what_is_kept_names_command_day_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_module, "RESULTS", tmp_path)
    assert results_module.read("latency") == results_module.NOT_MEASURED
    results_module.keep("latency", "| a |", "two cores")
    kept = results_module.read("latency")
    assert kept.startswith("`python -m bench latency`, 20")
    assert "two cores" in kept
    assert kept.endswith("\n\n| a |\n")


def test_the_figures_of_the_benchmarks_page_are_all_generated() -> None:
    page = (ROOT / results_module.DOCUMENT).read_text()
    by_hand = re.sub(r"<!-- generated: bench .*?<!-- end: bench [^\n]*", "", page, flags=re.DOTALL)
    assert re.findall(r"\d[\d.,]*(?:×| jobs/s| MB| %| submissions)", by_hand) == []
    assert set(re.findall(r"<!-- generated: bench (\S+) -->", page)) == set(SCENES)


def test_a_small_history_a_few_claimers_and_a_few_held_jobs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_history, "TURNS", 1)
    monkeypatch.setattr(big_history, "TIMES", 2)
    monkeypatch.setattr(claimers, "SECONDS", 0.2)
    monkeypatch.setattr(claimers, "QUEUED", 500)
    for name in ("WARM_UP", "ROUNDS", "CLAIMS"):
        monkeypatch.setattr(held, name, 1)
    with DurablePostgres() as postgres:
        measured = [row.measure.partition(",")[0] for row in big_history.rows(postgres, 20, 100)]
        found = claimers.measure(postgres, connections=2, way="eight jobs")
        beside_held = [row.measure for row in held.rows(postgres, jobs=30)]
    assert measured == [
        "claim p50", "complete p50", "submit p50", "list p50", "stats p50", "retention of a month of events",
    ]  # fmt: skip
    assert found.rate > 0
    assert [name.split()[0] for name in beside_held] == ["claim"] * 5 + ["pause", "resume"]


@pytest.mark.skipif(not pgbouncer.PROGRAM, reason="pgbouncer is not installed")
def test_a_small_fleet_is_measured_on_both_ways_and_at_half_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gateway: Gateway
) -> None:
    sizes = {"WORKERS": [1, 3], "SECONDS": 0.5, "ROUNDS": 2, "START_SECONDS": 0.1, "WARM_UP_JOBS": 6}
    for name, value in sizes.items():
        monkeypatch.setattr(fleet, name, value)
    monkeypatch.setattr(fleet, "PICTURE", tmp_path / "fleet.svg")
    monkeypatch.setattr(fleet_wake_up, "SUBMISSIONS", 2)
    lines = fleet.scene(gateway, "here", keeps=True).splitlines()
    assert [line.split("|")[1:4] for line in lines if re.match(r"\| \d+ \|", line)][:2] == [
        [" 1 ", " none ", " direct, 1 connections "],
        [" 1 ", " none ", " PgBouncer, 32 connections "],
    ]
    assert sum("through PgBouncer" in line or "behind PgBouncer" in line for line in lines) == 3
    assert "PgBouncer</text>" in (tmp_path / "fleet.svg").read_text()
