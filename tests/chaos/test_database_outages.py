"""A database that every host loses for longer than the heartbeat timeout costs no attempt and calls nobody dead."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.installation import Installation, listed
from tests.chaos.length import LONGER_THAN_ANSWER_TIMEOUT_SECONDS, QUICK_HEARTBEATS, SHORT, wait_until
from tests.chaos.network import Network
from tests.chaos.outages import WAYS, Way
from tests.conftest import Convertq
from tests.postgres_processes import thawed_in_the_end
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway

HOSTS = 2
RUNNING = 2 * HOSTS  # jobs, one for each worker
#: s of outage, and the heartbeats that it outlasts; the defaults are one every 10 s, and dead after 40 s
LENGTHS: dict[float, dict[str, object]] = (
    {LONGER_THAN_ANSWER_TIMEOUT_SECONDS: QUICK_HEARTBEATS} if SHORT else {50: {}, 120: {}}
)
#: RETRY_MAX_ATTEMPTS: one makes a dead letter of each attempt that is lost, the default converts the job again
ATTEMPTS = {"one attempt": 1, "attempts by default": None}


class Site:
    """One PostgreSQL behind one network, with an installation for each of ATTEMPTS; `way` is how it is lost."""

    def __init__(self, stack: contextlib.ExitStack, way: str) -> None:
        self._way: Way = WAYS[way]
        self.postgres = stack.enter_context(EmbeddedPostgres(port=0))
        self.network = stack.enter_context(Network(self.postgres.port))
        stack.enter_context(thawed_in_the_end(self.postgres))

    def lose(self) -> None:
        self._way.begin(self.postgres, self.network)

    def find_again(self) -> None:
        self._way.end(self.postgres, self.network)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", LENGTHS)
def test_an_outage_longer_than_the_heartbeat_timeout_burns_no_attempt(
    seconds: float, convertq: Convertq, gateway: StandInGateway, tmp_path: Path
) -> None:
    during, afterwards = threading.Event(), threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(afterwards.set)
        sites = {way: Site(stack, way) for way in WAYS}
        installations = [*installed(sites, tmp_path, convertq, LENGTHS[seconds])]
        begin_work(installations, gateway, during, afterwards)

        lost_at = time.monotonic()
        for site in sites.values():
            site.lose()
        wait_until(lost_at + seconds / 2)
        during.set()  # half of the conversions end while there is no database
        wait_until(lost_at + seconds)
        for site in sites.values():
            site.find_again()

        commands = let_others_judge(installations)
        afterwards.set()
        for command in commands:  # one that finds silent servers may listen for a heartbeat timeout before it judges
            assert command.wait(90) == 0, command.tail()
        problems = listed(problem for each in installations for problem in each.problems(gateway, timeout=60))
        assert not problems, f"after {seconds:g} s without the database, {problems}"


def installed(
    sites: dict[str, Site], folder: Path, convertq: Convertq, heartbeats: dict[str, object]
) -> Iterator[Installation]:
    for way, site in sites.items():
        for name, attempts in ATTEMPTS.items():
            yield Installation(
                f"{way} with {name}", site.postgres, site.network.port, folder, convertq,
                RETRY_MAX_ATTEMPTS=attempts, **heartbeats,
            )  # fmt: skip


def begin_work(
    installations: list[Installation], gateway: StandInGateway, during: threading.Event, afterwards: threading.Event
) -> None:
    """Each worker has a conversion under way, and as many jobs wait."""
    for installation in installations:
        for _ in range(HOSTS):
            installation.start_host()
    for installation in installations:
        installation.wait_until_ready()
        installation.put(gateway, RUNNING // 2, during)
        installation.put(gateway, RUNNING // 2, afterwards)
    gateway.wait_for(RUNNING * len(installations))
    for installation in installations:
        installation.put(gateway, RUNNING)


def let_others_judge(installations: list[Installation]) -> list[Process]:
    """As soon as the database is back: `convertq reclaim` from cron, and a supervisor that starts."""
    commands = [installation.run("reclaim") for installation in installations]
    for installation in installations:
        installation.start_host()
    for installation in installations:
        installation.wait_until_ready()
    return commands
