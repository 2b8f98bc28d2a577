"""`convertq migrate` of a later release, while workers work and a dump reads: nobody waits, and older code works on."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.installation import CLAIM_LOST, Installation, listed
from tests.chaos.length import SHORT, wait_until
from tests.conftest import Convertq
from tests.gateway_behaviours import delayed
from tests.newer_release import NewerRelease
from tests.stand_in_gateway import StandInGateway

READ_SECONDS = 8 if SHORT else 25
CONVERSION_SECONDS = 0.2
WORKERS = 4
JOBS = int((READ_SECONDS + 6) * WORKERS / CONVERSION_SECONDS)  # more than they can convert meanwhile
#: s between two completions of the whole installation. A migration that waits in short steps costs some tenths of one;
#: behind one that waits for the reader, nobody completes a job for as long as the reader reads.
LONGEST_GAP_SECONDS = READ_SECONDS / 2


@pytest.mark.timeout(240)
def test_a_migration_behind_a_long_reader_stops_nobody_and_leaves_older_workers_at_work(
    convertq: Convertq, own_postgres: EmbeddedPostgres, gateway: StandInGateway, tmp_path: Path
) -> None:
    gateway.default = delayed(CONVERSION_SECONDS)
    installation = Installation("migrated", own_postgres, own_postgres.port, tmp_path, convertq)
    for _ in range(WORKERS // 2):
        installation.start_host()
    installation.wait_until_ready()
    release = NewerRelease(tmp_path / "newer")
    version = release.add_column()
    installation.put(gateway, JOBS)
    gateway.wait_for(WORKERS)

    began = time.time()
    with reader(installation):
        migration = installation.run("migrate", **release.environment)
        wait_until(time.monotonic() + READ_SECONDS)
        gap = longest_gap(installation, began, time.time())
    assert migration.wait(60) == 0, migration.tail()
    assert applied(installation) == version
    problems = [] if gap < LONGEST_GAP_SECONDS else [f"no job was completed for {gap:.1f} s while a dump read"]
    end_every_session(installation)
    problems += [*installation.problems(gateway, timeout=60, story=CLAIM_LOST), *refused(installation)]
    assert not problems, f"after a migration behind a reader of {READ_SECONDS} s, {listed(problems)}"


@contextlib.contextmanager
def reader(installation: Installation) -> Iterator[None]:
    """As pg_dump: the lock on the table lasts as long as its transaction."""
    with installation.connect() as conn, conn.transaction():
        conn.execute("LOCK TABLE jobs IN ACCESS SHARE MODE")
        yield


def longest_gap(installation: Installation, began: float, ended: float) -> float:
    """s between two completions, the beginning and the end included."""
    with installation.connect() as conn:
        query = "SELECT extract(epoch FROM at)::float AS at FROM job_events WHERE event_type = 'complete' ORDER BY at"
        completions = [float(row["at"]) for row in conn.execute(query) if began < row["at"] < ended]
    return max(after - before for before, after in itertools.pairwise([began, *completions, ended]))


def applied(installation: Installation) -> int:
    with installation.connect() as conn:
        row = conn.execute("SELECT max(version) AS version FROM schema_migrations").fetchone()
    assert row
    return int(row["version"])


def end_every_session(installation: Installation) -> None:
    """The older workers, with conversions under way, have to connect to the newer schema."""
    with installation.connect() as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%'")


def refused(installation: Installation) -> Iterator[str]:
    """What older code says of the newer schema."""
    command = installation.run("list", "--limit", "1")
    if command.wait(30) != 0:
        yield f"convertq list: {command.tail()}"
    for host in installation.hosts:
        for line in host.events("db_down"):
            if "upgrade convertq" in line["error_message"]:
                yield f"a worker or supervisor: {line['error_message']}"
