"""Progress: nothing written for a short job, something new every two seconds for a long one."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from uuid import UUID

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
    """On a busy machine the jobs may take longer, and then others are tried."""
    supervisor()

    def have_been_short() -> bool:
        documents.conn.execute("TRUNCATE job_progress")
        gateway.script(delayed(0.5))
        jobs = [documents.put(), documents.put()]
        documents.wait_for_all(jobs, "complete")
        return all(row["completed_at"] - row["started_at"] < EVERY for row in map(documents.row, jobs))

    eventually(have_been_short, what="two jobs of under two seconds")
    # A table that was never written to has no page; even an insert that was undone leaves one.
    size = documents.conn.execute("SELECT pg_relation_size('job_progress') AS bytes").fetchone()
    assert size == {"bytes": 0}


def test_a_longer_job_shows_progress_every_two_seconds_and_keeps_its_lease(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """The steadiest of three counts: a busy machine may delay one report, and a timer that is too slow delays all."""
    gateway.default = delayed(4.5)
    supervisor()
    longest = []
    for _ in range(3):
        job_id = documents.put()
        seen = watch(documents, job_id)
        row = documents.row(job_id)
        leases = [shown["lease_expires_at"] for shown in seen]
        assert leases == sorted(set(leases))
        assert {shown["step"] for shown in seen} == {"converting"}
        assert all(0 <= shown["percent"] <= 100 for shown in seen)
        times = [row["started_at"], *(shown["at"] for shown in seen), row["completed_at"]]
        longest.append(max(later - earlier for earlier, later in pairwise(times)) if len(seen) > 1 else timedelta.max)
        if longest[-1] <= EVERY + SLACK:
            break
    assert min(longest) <= EVERY + SLACK
    assert documents.conn.execute("SELECT 1 FROM job_progress").fetchone() is None


def watch(documents: Documents, job_id: UUID) -> list[Row]:
    """Each progress that the job shows until it is complete."""
    seen: list[Row] = []

    def is_complete() -> bool:
        row = documents.conn.execute(QUERY, [job_id]).fetchone()
        if row and (not seen or row["at"] != seen[-1]["at"]):
            seen.append(row)
        return bool(documents.row(job_id)["status"] == "complete")

    eventually(is_complete, what="complete")
    return seen


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
