"""Memory does not grow with the objects. It takes a minute: `make test-s3` runs it, `make test` does not."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from convertq.queue.store.content_hash import sha256_of

from tests.conftest import Supervisor, Web
from tests.documents import Documents
from tests.gateway_behaviours import big
from tests.lifecycle.test_memory import peaks
from tests.stand_in_gateway import StandInGateway
from tests.storage import Storage
from tests.web_client import Visitor

MEGABYTES = 1024
#: It takes 45 s of CPU time, and other tests run beside it.
GIGABYTE_SECONDS = 300
MAY_GROW_BY = 40
DOWNLOADS, DOWNLOAD_MEGABYTES = 50, 20
WEB_MAY_GROW_BY = 30

pytestmark = pytest.mark.skipif(os.environ.get("CONVERTQ_TEST_STORE") != "s3", reason="only with make test-s3")


@pytest.mark.timeout(2 * GIGABYTE_SECONDS)
def test_a_gigabyte_from_the_bucket_and_a_gigabyte_to_it_make_no_process_grow(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, storage: Storage, tmp_path: Path
) -> None:
    process = supervisor(GATEWAY_TIMEOUT_MS=GIGABYTE_SECONDS * 1000, WORKER_CONCURRENCY=1, **storage.environment)
    documents.wait_for(documents.put(), "complete")
    before = peaks(process)
    gateway.script(big(MEGABYTES))
    job_id, sparse = uuid4(), tmp_path / "sparse.pdf"
    sparse.write_bytes(b"%PDF-1.7\n")
    os.truncate(sparse, MEGABYTES << 20)
    with open(sparse, "rb") as file:
        sha256 = sha256_of(file)
        key = f"{storage.url.prefix}uploads/{job_id}.pdf"
        storage.bucket.put(key, file, sha256, "application/pdf", only_new=True)
    documents.insert(job_id, bytes=MEGABYTES << 20)
    row = documents.wait_for(job_id, timeout=GIGABYTE_SECONDS)
    assert (row["status"], row["error_message"]) == ("complete", None)
    found = storage.bucket.head(row["result_path"].removeprefix(storage.url.location_of("")))
    assert found is not None
    assert found.size > (MEGABYTES - 1) << 20
    after = peaks(process)
    print(f"MiB before {before}, after {after}")
    assert max(after[pid] - before[pid] for pid in before) <= MAY_GROW_BY


def test_fifty_downloads_at_once_make_no_web_process_grow(web: Web, documents: Documents, storage: Storage) -> None:
    site = web(WEB_PROCESSES=2, **storage.environment)
    visitor = site.visitor()
    xml = b"<a>" + bytes(DOWNLOAD_MEGABYTES << 20).replace(b"\0", b" ") + b"</a>"
    job_id, sha256 = uuid4(), hashlib.sha256(xml).hexdigest()
    key = f"{storage.url.prefix}results/{job_id}/1.1-{sha256[:16]}.xml"
    storage.bucket.put(key, xml, sha256, "application/xml", only_new=True)
    documents.insert(
        job_id, owner_session_id=visitor.owner, status="complete", completed_at="now",
        result_path=storage.url.location_of(key),
    )  # fmt: skip
    path = f"/api/jobs/{job_id}/download"

    def download(_: int) -> int:
        with Visitor(site.url) as one:
            one.cookies.update(visitor.cookies)
            with one.get(path, stream=True, timeout=100) as answer:
                return sum(map(len, answer.iter_content(1 << 16)))

    for number in range(4):
        download(number)  # each process has done everything once
    before = peaks(site.process)
    with ThreadPoolExecutor(DOWNLOADS) as threads:
        assert list(threads.map(download, range(DOWNLOADS))) == [len(xml)] * DOWNLOADS
    after = peaks(site.process)
    print(f"MiB before {before}, after {after}")
    assert max(after[pid] - before[pid] for pid in before) <= WEB_MAY_GROW_BY
