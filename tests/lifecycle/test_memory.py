"""Memory does not grow with the documents."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import big
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway

MEGABYTES = 150
MAY_GROW_BY = 30


def peaks(process: Process) -> dict[int, int]:
    """The most memory that each process of the tree has ever had, in MiB."""
    return {pid: peak_of(pid) for pid in [process.pid, *process.children()]}


def peak_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def test_a_large_pdf_and_a_large_xml_do_not_make_any_process_grow(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    process = supervisor(GATEWAY_TIMEOUT_MS=60000, WORKER_CONCURRENCY=1)
    documents.wait_for(documents.put(), "complete")
    before = peaks(process)

    gateway.script(big(MEGABYTES))
    job_id = documents.upload(b"%PDF-1.7\n")
    with open(documents.source(job_id), "r+b") as sparse:
        sparse.truncate(MEGABYTES << 20)
    documents.insert(job_id, bytes=MEGABYTES << 20)
    assert documents.wait_for(job_id)["status"] == "complete"

    after = peaks(process)
    assert documents.result(job_id).stat().st_size > (MEGABYTES - 1) << 20
    assert gateway.requests_of(job_id)[0].upload.file_size == MEGABYTES << 20
    assert after.keys() == before.keys()
    grown = {pid: after[pid] - before[pid] for pid in before}
    print(f"MiB before {before}, after {after}")
    assert max(grown.values()) <= MAY_GROW_BY
    documents.result(job_id).unlink()
