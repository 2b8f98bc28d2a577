"""A database that is away for long, while the other tests run: no watchdog, no restart, and then back to work."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pytest
from convertq.embedded.postgres import free_port

from tests.systemd.conftest import Database, Host
from tests.waiting import eventually

SECONDS = float(os.environ.get("OUTAGE_SECONDS", "120"))
STRICTER = "[Service]\nWatchdogSec=15\n"
POOL = "convertq-worker@outage.service"


@dataclass(frozen=True)
class Outage:
    host: Host
    began: float


@pytest.fixture(scope="session")
def outage(host: Host) -> Outage:
    database = Database(host.box, free_port())
    database.make()
    own = Host(host.box, database, host.gateway_port)
    own.configure("/etc/convertq/worker-outage.env")
    own.box.sh("set -a; . /etc/convertq/worker-outage.env; exec runuser -u convertq -- convertq migrate")
    own.box.change(POOL, STRICTER)
    own.box.systemctl("start", POOL)
    database.stop()
    return Outage(own, time.monotonic())


def test_the_database_of_a_pool_goes_away(outage: Outage) -> None:
    box = outage.host.box
    waiting = "4 workers, 0 busy, 0 done, waiting for the database"
    eventually(lambda: box.show(POOL, "StatusText") == waiting, what="the pool to wait")
    assert box.show(POOL, "WatchdogUSec") == "15s"


def test_the_pool_has_waited_without_a_restart_and_works_again(outage: Outage) -> None:
    box, database = outage.host.box, outage.host.database
    eventually(lambda: time.monotonic() - outage.began > SECONDS, SECONDS, "the outage to be long enough")
    assert (box.show(POOL, "ActiveState"), box.show(POOL, "NRestarts")) == ("active", "0")
    assert box.show(POOL, "StatusText").endswith("waiting for the database")
    print(f"\nthe database was away for {time.monotonic() - outage.began:.0f} s")
    database.start()
    eventually(lambda: box.show(POOL, "StatusText").endswith("breaker closed"), what="the pool to be back")
    database.rows("INSERT INTO jobs (bytes, sha256, status) VALUES (1, repeat('0', 64), 'queued') RETURNING id")
    eventually(lambda: database.rows("SELECT 1 FROM jobs WHERE attempt_count > 0"), what="a job to be taken")
    box.systemctl("stop", POOL)
    assert box.show(POOL, "Result") == "success"
    said = box.journal(POOL, "-o", "cat")
    assert said.count('"event": "db_down"') == 5  # once for each process
    assert "Watchdog" not in said
