"""An application that keeps rows locked for half a minute delays their jobs: it costs no attempt, and nobody else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.installation import Installation, listed
from tests.chaos.length import SHORT, wait_until
from tests.conftest import Convertq
from tests.stand_in_gateway import StandInGateway

LOCKED_SECONDS = 14 if SHORT else 30
OTHERS = 10  # jobs that nobody locks
#: s. A completion that waits for the lock of a dependant is free to extend the lease of its own row meanwhile.
SHORT_LEASE = {"WORKER_LEASE_TTL_SEC": LOCKED_SECONDS // 2, "WORKER_LEASE_EXTEND_SEC": LOCKED_SECONDS // 7}


@pytest.mark.timeout(180)
def test_rows_that_a_foreign_transaction_locks_burn_no_attempt_and_stop_nobody_else(
    convertq: Convertq, own_postgres: EmbeddedPostgres, gateway: StandInGateway, tmp_path: Path
) -> None:
    """A row that is processed, a row that is queued, and a dependant of a job that completes."""
    convert, claim = threading.Event(), threading.Event()
    rows = Installation("own row", own_postgres, own_postgres.port, tmp_path, convertq)
    dependants = Installation("dependant", own_postgres, own_postgres.port, tmp_path, convertq, **SHORT_LEASE)
    installations = (rows, dependants)
    for installation in installations:
        installation.start_host()
    for installation in installations:
        installation.wait_until_ready()
    [running], [_], [needed] = (
        rows.put(gateway, 1, convert),
        rows.put(gateway, 1, claim),
        dependants.put(gateway, 1, convert),
    )
    gateway.wait_for(3)
    [queued], waiting = rows.put(gateway, 1), put_dependant(dependants, needed)  # both workers of `rows` are busy

    with locked(rows, running), locked(rows, queued), locked(dependants, waiting):
        begun_at = time.monotonic()
        claim.set()
        wait_until(begun_at + LOCKED_SECONDS / 4)  # by then the holder has tried to report progress
        convert.set()
        others = {installation: installation.put(gateway, OTHERS) for installation in installations}
        problems = [each for its in others.items() for each in at_a_standstill(*its, begun_at + LOCKED_SECONDS)]
        wait_until(begun_at + LOCKED_SECONDS)
    for installation in installations:
        problems += [*installation.problems(gateway, timeout=60), *untrue(installation)]
    assert not problems, f"after rows were locked for {LOCKED_SECONDS} s, {listed(problems)}"


@contextlib.contextmanager
def locked(installation: Installation, job_id: UUID) -> Iterator[None]:
    with installation.connect() as conn, conn.transaction():
        assert conn.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", [job_id]).fetchone()
        yield


def put_dependant(installation: Installation, needed: UUID) -> UUID:
    with installation.connect() as conn, conn.transaction():
        job_id = installation.insert(conn, status="uploaded")
        conn.execute("INSERT INTO job_dependencies (job_id, depends_on) VALUES (%s, %s)", [job_id, needed])
    return job_id


def at_a_standstill(installation: Installation, others: list[UUID], until: float) -> Iterator[str]:
    """Jobs that nobody locks are converted while the locks are held: until then, by the monotonic clock."""
    with installation.connect() as conn:
        try:
            installation.documents(conn).wait_for_all(others, "complete", timeout=until - time.monotonic())
        except AssertionError as error:
            yield f"{installation.name}: while a row was locked, {error}"


def untrue(installation: Installation) -> Iterator[str]:
    """The database was there all the time."""
    for host in installation.hosts:
        for line in host.events("db_down"):
            yield f"{installation.name}: db_down in the log: {line['error_message']}"
