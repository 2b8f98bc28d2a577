"""Progress: nothing written for a short job, something new every two seconds for a long one."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import pairwise

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed, drip_body
from tests.stand_in_gateway import StandInGateway
from tests.waiting import Row, eventually

EVERY = timedelta(seconds=2)
SLACK = timedelta(seconds=0.5)
QUERY = (
    "SELECT step, percent, bytes_done, bytes_total, progress.updated_at AS at, lease_expires_at"
    " FROM job_progress AS progress JOIN jobs ON jobs.id = progress.job_id WHERE job_id = %s"
)


def test_a_job_of_under_two_seconds_writes_no_progress(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.script(delayed(0.5))  # the rest of the two seconds is for a busy machine
    supervisor()
    documents.wait_for_all([documents.put(), documents.put()], "complete")
    # A table that was never written to has no page; even an insert that was undone leaves one.
    size = documents.conn.execute("SELECT pg_relation_size('job_progress') AS bytes").fetchone()
    assert size == {"bytes": 0}


def test_a_longer_job_shows_progress_every_two_seconds_and_keeps_its_lease(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = delayed(4.5)
    supervisor()
    job_id = documents.put()
    seen: list[Row] = []
    looks: list[float] = []  # at the row, by this test: a busy machine delays them as it delays the worker

    def is_complete() -> bool:
        looks.append(time.monotonic())
        row = documents.conn.execute(QUERY, [job_id]).fetchone()
        if row and (not seen or row["at"] != seen[-1]["at"]):
            seen.append(row)
        return bool(documents.row(job_id)["status"] == "complete")

    eventually(is_complete, what="complete")
    row = documents.row(job_id)
    times = [row["started_at"], *(shown["at"] for shown in seen), row["completed_at"]]
    assert len(seen) >= 2
    busy = timedelta(seconds=max(later - earlier for earlier, later in pairwise(looks)))
    assert all(later - earlier <= EVERY + SLACK + busy for earlier, later in pairwise(times))
    leases = [shown["lease_expires_at"] for shown in seen]
    assert leases == sorted(set(leases))
    assert {shown["step"] for shown in seen} == {"converting"}
    assert all(0 <= shown["percent"] <= 100 for shown in seen)
    assert documents.conn.execute("SELECT 1 FROM job_progress").fetchone() is None


def test_the_bytes_of_a_slow_answer_are_counted_as_they_come(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = drip_body(0.03)
    supervisor()
    job_id = documents.put()
    shown = eventually(lambda: documents.conn.execute(QUERY + " AND step = 'writing'", [job_id]).fetchone())
    assert shown is not None
    assert 0 <= shown["bytes_done"] < shown["bytes_total"]
    documents.wait_for(job_id, "complete")
    assert shown["bytes_total"] == documents.result(job_id).stat().st_size
