"""A synchronous standby that falls silent stalls every commit: afterwards no job belongs to a worker that is idle."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.installation import CLAIM_LOST, Installation, listed
from tests.chaos.length import LONGER_THAN_ANSWER_TIMEOUT_SECONDS, SHORT, wait_until
from tests.conftest import Convertq
from tests.gateway_behaviours import delayed
from tests.stalling_standby import StallingStandby
from tests.stand_in_gateway import StandInGateway

JOBS = 24
CONVERSION_SECONDS = 0.5
STALLED_SECONDS = LONGER_THAN_ANSWER_TIMEOUT_SECONDS if SHORT else 40.0
#: s after the stall, in which two workers could convert all jobs many times; the lease ends after 600.
RECOVERS_WITHIN_SECONDS = 60.0


@pytest.mark.timeout(300)
def test_commits_that_stall_strand_no_job_and_burn_no_attempt(
    convertq: Convertq, own_postgres: EmbeddedPostgres, gateway: StandInGateway, tmp_path: Path
) -> None:
    """One installation completes and claims when the stall begins; the second is idle, and jobs arrive meanwhile; the
    third has no host before that, so that the registration of a supervisor stalls too."""
    gateway.default = delayed(CONVERSION_SECONDS)
    with StallingStandby(own_postgres) as standby:
        busy, idle, starting = (
            Installation(name, own_postgres, own_postgres.port, tmp_path, convertq)
            for name in ("busy", "idle", "starting")
        )
        for installation in (busy, idle):
            installation.start_host()
            installation.wait_until_ready()
        busy.put(gateway, JOBS)
        gateway.wait_for(4)

        standby.stall()
        stalled_at = time.monotonic()
        starting.start_host()
        for installation in (idle, starting):
            installation.put(gateway, JOBS)
        wait_until(stalled_at + STALLED_SECONDS)
        standby.resume()

        stories = [each.problems(gateway, RECOVERS_WITHIN_SECONDS, story=CLAIM_LOST) for each in (busy, idle, starting)]
        problems = listed(problem for story in stories for problem in story)
        assert not problems, f"after commits were stalled for {STALLED_SECONDS:g} s, {problems}"
