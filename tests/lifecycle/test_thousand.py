"""A thousand documents: each one converted, once."""

from __future__ import annotations

from collections import Counter

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.stand_in_gateway import StandInGateway


def test_a_thousand_documents_are_each_converted_exactly_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    jobs = documents.put_many(1000)
    process = supervisor(WORKER_CONCURRENCY=4)
    documents.wait_for_all(jobs, timeout=60)
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
