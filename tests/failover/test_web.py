"""The web while the primary is killed and its standby promoted: what it has acknowledged is there afterwards."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

from tests.conftest import Web
from tests.postgres_pair import Pair
from tests.waiting import eventually
from tests.web_client import PDF, Site

ACKNOWLEDGED = 201
UNAVAILABLE = 503


class Uploads:
    """A visitor who uploads one file after another until it is told to stop."""

    def __init__(self, site: Site) -> None:
        self.ids: list[UUID] = []
        self.statuses: list[int] = []
        self._visitor, self._stopping = site.visitor(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            answer = self._visitor.submit(PDF + b"%% %d\n" % len(self.statuses))
            self.statuses.append(answer.status_code)
            if answer.status_code == ACKNOWLEDGED:
                self.ids.append(UUID(answer.json()["id"]))

    def wait_for(self, more: int) -> None:
        wanted = len(self.ids) + more
        eventually(lambda: len(self.ids) >= wanted, what=f"{more} more uploads")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.mark.timeout(300)
def test_the_web_finds_the_new_primary_and_has_lost_no_upload(web: Web) -> None:
    with Pair(synchronous=True) as pair:
        site = web(DATABASE_URL=pair.url(), SESSION_MAX_ACTIVE=100_000, WEB_PROCESSES=2)
        uploads = Uploads(site)
        for _ in range(3):
            uploads.wait_for(20)
            pair.kill_primary()
            pair.promote()
            uploads.wait_for(20)
            pair.bury_zombies()
            pair.follow()
        uploads.stop()
        with pair.connect() as conn:
            rows = conn.execute("SELECT id FROM jobs WHERE status = 'queued'").fetchall()
        assert set(uploads.ids) <= {row["id"] for row in rows}
        assert set(uploads.statuses) <= {ACKNOWLEDGED, UNAVAILABLE}
        assert site.process.events("web_error") == []
        assert site.process.stop() == 0
