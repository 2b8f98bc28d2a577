"""No storm of kills, pauses, outages, cuts, locks and migrations loses, doubles or strands a job."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos import report
from tests.chaos.audit import Audit
from tests.chaos.client import Client
from tests.chaos.cluster import Cluster, a_cluster
from tests.chaos.length import MINUTES
from tests.chaos.plan import draw_plan
from tests.chaos.storm import SETTLES_WITHIN_SECONDS, Storm

SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
LOGS = Path(__file__).parents[2] / "build" / "chaos"


@pytest.mark.timeout(MINUTES * 60 + SETTLES_WITHIN_SECONDS + 180)
def test_a_storm_loses_doubles_and_strands_no_job(tmp_path: Path) -> None:
    print(f"\nCHAOS_SEED={SEED} CHAOS_MINUTES={MINUTES:g}", flush=True)
    with a_cluster(tmp_path, SEED) as cluster:
        client = Client(cluster, SEED)
        client.start()
        storm = Storm(cluster, client)
        unsettled = weather(storm, MINUTES * 60)
        violations = [*unsettled, *stop(cluster)]
        audit = Audit(cluster, client, storm.injected)
        violations += audit.violations()
        tell(audit, storm, cluster, client)
        keep_logs(cluster)
    listed = "\n  ".join(violations)
    assert not violations, f"{len(violations)} violations with CHAOS_SEED={SEED}:\n  {listed}"


def weather(storm: Storm, seconds: float) -> list[str]:
    storm.blow(draw_plan(SEED, seconds), seconds)
    try:
        storm.calm_down()
    except AssertionError as error:
        return [str(error)]
    return []


def stop(cluster: Cluster) -> list[str]:
    """Every supervisor goes when asked to, and says that it went well."""
    codes = [host.process.stop() for host in cluster.hosts]
    return [f"a supervisor exited with {code}" for code in codes if code != 0]


def tell(audit: Audit, storm: Storm, cluster: Cluster, client: Client) -> None:
    timeline = report.Timeline(cluster, audit.events, storm.injected)
    print(f"\nSeed {SEED}, {MINUTES:g} minutes, {len(storm.injected)} faults\n")
    print(report.recovery_table(timeline, storm.injected, storm.faults.skipped))
    print()
    totals = report.totals_table(audit.jobs, audit.events, cluster.gateway, len(client.pauses), storm.migrations)
    print(totals, flush=True)


def keep_logs(cluster: Cluster) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    for number, host in enumerate(cluster.hosts):
        lines = (line for process in host.started for line in process.lines)
        (LOGS / f"host-{number}.log").write_text("\n".join(lines))
    print(f"\nThe hosts' logs are in {LOGS}", flush=True)
