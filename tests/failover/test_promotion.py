"""The primary is lost and its standby promoted, under load: nothing acknowledged is lost, nothing completed twice."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from convertq.queue.config import Config, read_config
from psycopg.rows import dict_row

from tests.conftest import Dirs, Environment, Supervisor
from tests.documents import Documents
from tests.failover.load import (
    SubmittedLoad,
    completed_twice,
    count_complete,
    lost,
    seconds_to_first_completion,
    wait_for_completions,
)
from tests.failover.report import Line, Report
from tests.gateway_behaviours import delayed
from tests.postgres_pair import Pair
from tests.postgres_processes import freeze
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually

TIMES = int(os.environ.get("FAILOVER_TIMES", "20"))
WORKERS = 4
JOBS_PER_FAULT = 150
CONVERSION_SECONDS = 0.03
#: The promise: from the promotion to the first completion on the new primary.
FIRST_COMPLETION_SECONDS = 5.0
#: A frozen primary is noticed when an answer does not come (12 s); then two hosts are tried for 2 s each.
FROZEN_SECONDS = 30.0
ON_S3 = os.environ.get("CONVERTQ_TEST_STORE") == "s3"


def settings(pair: Pair, *ports: int) -> dict[str, object]:
    return {"DATABASE_URL": pair.url(*ports), "WORKER_CONCURRENCY": WORKERS, "WORKER_POLL_INTERVAL_MS": 1500}


def configured(environment: Environment, pair: Pair) -> Config:
    return read_config(environment(**settings(pair)))


def lost_processes(process: Process) -> int:
    return len(process.events("worker_died")) + (process.popen.poll() is not None)


def calls_repeated(gateway: StandInGateway) -> int:
    counts = Counter(request.correlation_id for request in gateway.requests)
    return sum(times - 1 for times in counts.values())


def queue_more(pair: Pair, dirs: Dirs) -> list[UUID]:
    """So many that every worker is busy when the primary is lost. The commit waits for the standby."""
    with psycopg.connect(pair.primary.url(), autocommit=True, row_factory=dict_row) as conn:
        return Documents(conn, dirs.uploads, dirs.results).put_many(JOBS_PER_FAULT)


def kill(pair: Pair) -> float:
    pair.kill_primary()
    return pair.promote()


def freeze_and_return(pair: Pair) -> float:
    """The old primary is silent until the new one works, and then runs on beside it."""
    freeze(pair.primary)
    return pair.promote()


def freeze_and_fence(pair: Pair) -> float:
    """Returns when the old primary was fenced: that ends the sessions, which wait for an answer."""
    freeze(pair.primary)
    pair.promote()
    pair.kill_zombies()
    return time.monotonic()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("what", "fail", "times", "within"),
    [
        ("primary killed (kill -9)", kill, TIMES, FIRST_COMPLETION_SECONDS),
        ("primary frozen (SIGSTOP), and back later", freeze_and_return, 2, FROZEN_SECONDS),
        ("primary frozen, and killed after the promotion", freeze_and_fence, 2, FIRST_COMPLETION_SECONDS),
    ],
)
def test_with_a_synchronous_standby_nothing_is_lost(
    supervisor: Supervisor, environment: Environment, gateway: StandInGateway, dirs: Dirs, report: Report,
    what: str, fail: Callable[[Pair], float], times: int, within: float,
) -> None:  # fmt: skip
    gateway.default = delayed(CONVERSION_SECONDS)
    seconds = []
    with Pair(synchronous=True) as pair:
        process, config = supervisor(**settings(pair)), configured(environment, pair)
        with SubmittedLoad(config) as load:
            for _ in range(times):
                load.acknowledged += queue_more(pair, dirs)
                wait_for_completions(pair, 20)
                seconds.append(seconds_to_first_completion(pair, fail(pair)))
                pair.thaw_zombies()
                wait_for_completions(pair, 20)
                pair.bury_zombies()
                pair.follow()
        missing, twice = lost(pair, load.acknowledged, config), completed_twice(pair)
        report.lines.append(
            Line(
                what, "synchronous", len(load.acknowledged), len(missing), len(twice), calls_repeated(gateway),
                seconds, lost_processes(process),
            )
        )  # fmt: skip
        assert (missing, twice, load.errors) == ([], [], [])
        assert lost_processes(process) == 0
        assert max(seconds) < within
        assert process.stop() == 0


@pytest.mark.timeout(300)
def test_with_a_synchronous_standby_a_cut_network_loses_nothing(
    supervisor: Supervisor, environment: Environment, gateway: StandInGateway, dirs: Dirs, report: Report
) -> None:
    """Only the hosts are cut off: the old primary runs on, and replicates until the standby is promoted."""
    gateway.default = delayed(CONVERSION_SECONDS)
    with Pair(synchronous=True) as pair, TcpProxy(pair.ports[0]) as proxy:
        ports = (proxy.port, pair.ports[1])
        process = supervisor(**settings(pair, *ports))
        config = read_config(environment(**settings(pair, *ports)))
        with SubmittedLoad(config) as load:
            wait_for_completions(pair, 20)
            proxy.refuse()
            seconds = seconds_to_first_completion(pair, pair.promote())
            wait_for_completions(pair, 20)
        missing, twice = lost(pair, load.acknowledged, config), completed_twice(pair)
        report.lines.append(
            Line(
                "network to the primary cut", "synchronous", len(load.acknowledged), len(missing), len(twice),
                calls_repeated(gateway), [seconds], lost_processes(process),
            )
        )  # fmt: skip
        assert (missing, twice, load.errors) == ([], [], [])
        assert lost_processes(process) == 0
        assert process.stop() == 0


@pytest.mark.timeout(300)
def test_with_an_asynchronous_standby_lost_completions_are_made_again(
    supervisor: Supervisor, environment: Environment, gateway: StandInGateway, dirs: Dirs, report: Report
) -> None:
    """The standby follows no longer, so that it misses what the primary acknowledges before it is killed.

    A directory has the results of the lost completions, and no call is repeated. On S3 the first attempt of a run does
    not look for one: it may call the gateway again, once.
    """
    gateway.default = delayed(CONVERSION_SECONDS)
    with Pair(synchronous=False) as pair:
        process = supervisor(**settings(pair))
        with pair.connect() as conn:
            jobs = Documents(conn, dirs.uploads, dirs.results).put_many(300)
            eventually(lambda: count_complete(conn) >= 20, what="some are complete")
            pair.cut_replication()
            eventually(lambda: count_complete(conn) >= 80, what="more are complete, which the standby misses")
            done = {row["id"] for row in conn.execute("SELECT id FROM jobs WHERE status = 'complete'")}
            pair.kill_primary()
        promoted_at = pair.promote()
        with pair.connect() as conn:
            kept = {row["id"] for row in conn.execute("SELECT id FROM jobs WHERE status = 'complete'")}
        seconds = seconds_to_first_completion(pair, promoted_at)
        missing, twice = lost(pair, jobs, configured(environment, pair)), completed_twice(pair)
        again, allowed = done - kept, 2 if ON_S3 else 1
        called_again = [job_id for job_id in again if len(gateway.requests_of(job_id)) > allowed]
        report.lines.append(
            Line(
                f"primary killed with {len(again)} completions that only it had", "asynchronous", len(jobs),
                len(missing), len(twice), calls_repeated(gateway), [seconds], lost_processes(process),
            )
        )  # fmt: skip
        assert again, "the standby had everything: the test has shown nothing"
        assert (called_again, missing, twice) == ([], [], [])
        assert lost_processes(process) == 0
        assert process.stop() == 0
