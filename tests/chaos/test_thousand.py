"""A thousand documents, submitted by four at once: each one converted, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import UUID

from tests.conftest import Convertq, Supervisor
from tests.documents import PDF, Documents
from tests.stand_in_gateway import StandInGateway


def submit_with_four(convertq: Convertq, folder: Path, count: int) -> list[UUID]:
    """By four processes of `convertq submit`, while the workers are at it."""
    files = [folder / f"{number}.pdf" for number in range(count)]
    for number, path in enumerate(files):
        path.write_bytes(PDF + b"%% %d\n" % number)
    submitters = [convertq("submit", *map(str, files[start::4])) for start in range(4)]
    assert [submitter.wait(180) for submitter in submitters] == [0, 0, 0, 0]
    return [UUID(line.strip()) for submitter in submitters for line in submitter.lines]


def test_a_thousand_documents_are_each_converted_exactly_once(
    supervisor: Supervisor, convertq: Convertq, documents: Documents, gateway: StandInGateway, tmp_path: Path
) -> None:
    process = supervisor(WORKER_CONCURRENCY=4)
    jobs = submit_with_four(convertq, tmp_path, 1000)
    assert len(set(jobs)) == 1000
    documents.wait_for_all(jobs, timeout=180)
    assert process.stop() == 0

    query = "SELECT status, attempt_count, count(*) AS count FROM jobs GROUP BY 1, 2"
    assert documents.conn.execute(query).fetchall() == [{"status": "complete", "attempt_count": 1, "count": 1000}]
    calls = Counter(request.correlation_id for request in gateway.requests)
    assert calls == Counter(str(job_id) for job_id in jobs)
    assert {path.name for path in documents.results.iterdir()} == {f"{job_id}.xml" for job_id in jobs}
    assert all(str(job_id) in documents.result(job_id).read_text() for job_id in jobs)
    query = (
        "SELECT story, count(*) AS count FROM"
        " (SELECT string_agg(event_type, ' ' ORDER BY id) AS story FROM job_events GROUP BY job_id) AS stories"
        " GROUP BY story"
    )
    assert documents.conn.execute(query).fetchall() == [{"story": "created queued processing complete", "count": 1000}]
    query = "SELECT count(DISTINCT meta ->> 'worker') AS workers FROM job_events"
    assert documents.conn.execute(query).fetchone() == {"workers": 4}
    assert [server["status"] for server in documents.servers()] == ["stopped"]
