"""Patroni fails over by itself: a planned switchover, and a node that is killed."""

from __future__ import annotations

import time

import pytest
from convertq.queue.config import read_config

from tests.conftest import Environment, Supervisor
from tests.failover.load import (
    SubmittedLoad,
    completed_twice,
    lost,
    seconds_to_first_completion,
    wait_for_completions,
)
from tests.failover.patroni import VENV, Patroni
from tests.failover.report import Line, Report
from tests.failover.test_promotion import CONVERSION_SECONDS, calls_repeated, lost_processes
from tests.gateway_behaviours import delayed
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not VENV.exists(), reason="Patroni is not installed: make test-patroni")


@pytest.mark.timeout(600)
def test_patroni_fails_over_and_nothing_is_lost(
    supervisor: Supervisor, environment: Environment, gateway: StandInGateway, report: Report
) -> None:
    gateway.default = delayed(CONVERSION_SECONDS)
    with Patroni() as cluster:
        settings = {"DATABASE_URL": cluster.url(), "WORKER_CONCURRENCY": 4}
        process, config = supervisor(**settings), read_config(environment(**settings))
        with SubmittedLoad(config) as load:
            wait_for_completions(cluster, 20)
            cluster.switch_over("a", "b")
            eventually(lambda: cluster.role("b") == "leader", 90, "b leads")
            times = [seconds_to_first_completion(cluster, time.monotonic())]
            eventually(lambda: cluster.role("a") == "sync_standby", 90, "a follows")
            wait_for_completions(cluster, 20)
            cluster.kill("b")
            eventually(lambda: cluster.role("a") == "leader", 90, "a leads again")
            times.append(seconds_to_first_completion(cluster, time.monotonic()))
            wait_for_completions(cluster, 20)
        missing, twice = lost(cluster, load.acknowledged, config), completed_twice(cluster)
        report.lines.append(
            Line(
                "Patroni: a switchover, then a node killed", "synchronous", len(load.acknowledged), len(missing),
                len(twice), calls_repeated(gateway), times, lost_processes(process),
            )
        )  # fmt: skip
        assert (missing, twice) == ([], [])
        assert lost_processes(process) == 0
        assert process.stop() == 0
