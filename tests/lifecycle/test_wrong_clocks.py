"""Hosts whose clocks are an hour wrong, in either direction: nothing changes but the time in their own log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import processes
from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed, status
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway

#: Every way in which Python tells the time of day, shifted before anything of convertq is imported. The monotonic clock
#: is left alone: it has no time of day that could be wrong.
WRONG_CLOCK = """#!{python}
import datetime, time
SHIFT = {seconds}
tell, tell_ns = time.time, time.time_ns
time.time = lambda: tell() + SHIFT
time.time_ns = lambda: tell_ns() + SHIFT * 10**9
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = Shifted
from convertq.cli.main import main
main()
"""


@pytest.fixture
def on_a_wrong_clock(supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Process]:
    """`on_a_wrong_clock(3600, **settings)`: a supervisor whose host is so many seconds ahead."""

    def start(seconds: int, **settings: object) -> Process:
        script = tmp_path / f"convertq{seconds:+}"
        script.write_text(WRONG_CLOCK.format(python=sys.executable, seconds=seconds))
        script.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(processes, "CONSOLE_SCRIPT", str(script))
            return supervisor(**settings)

    return start


def hours_off(process: Process) -> int:
    told = datetime.fromisoformat(process.events("ready")[0]["timestamp"])
    return round((told - datetime.now(UTC)) / timedelta(hours=1))


def test_clocks_that_are_an_hour_wrong_change_nothing(
    on_a_wrong_clock: Callable[..., Process], documents: Documents, gateway: StandInGateway
) -> None:
    """Leases are extended and retries wait for their time, and nobody takes another's job or server for dead."""
    settings = {
        "WORKER_LEASE_TTL_SEC": 8, "WORKER_LEASE_EXTEND_SEC": 1, "WORKER_HEARTBEAT_SEC": 1,
        "WORKER_HEARTBEAT_TIMEOUT_SEC": 8, "RETRY_BASE_DELAY_MS": 300, "GATEWAY_TIMEOUT_MS": 30_000,
    }  # fmt: skip
    hosts = [on_a_wrong_clock(3600, **settings), on_a_wrong_clock(-3600, **settings)]
    assert [hours_off(host) for host in hosts] == [1, -1]
    gateway.script(*[delayed(10)] * 2, *[status(503)] * 2)  # two that outlast their lease's first term
    jobs = documents.put_many(30)
    documents.wait_for_all(jobs, "complete")

    stories = [documents.story(job_id) for job_id in jobs]
    assert stories.count("created queued processing complete") == 28
    assert stories.count("created queued processing retry processing complete") == 2
    assert {server["status"] for server in documents.servers()} == {"active"}
    for row in map(documents.row, jobs):
        assert row["created_at"] <= row["started_at"] <= row["completed_at"] <= documents.now()
