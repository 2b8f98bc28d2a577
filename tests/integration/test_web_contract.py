"""No request, however odd, gets a server error or an answer that the contract does not name.

A few examples of each route here; `make test-api` sends thousands.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tests.conftest import Dirs, Web
from tests.contract import hold_to_contract, put_jobs
from tests.jobs import Conn


def test_generated_requests_get_the_answers_that_are_promised(web: Web, conn: Conn, dirs: Dirs, tmp_path: Path) -> None:
    site, owner = web(SESSION_MAX_ACTIVE=10**6), str(uuid4())
    jobs = put_jobs(conn, owner, dirs.uploads, dirs.results)
    verdict = hold_to_contract(site, owner, jobs, tmp_path, 6, "--phases", "fuzzing", "--seed", "1")
    assert verdict.code == 0, verdict.said
    assert verdict.requests > 80
