"""The job as a user of a queue in Python would write it when it has to be fast: urllib3 for the gateway, then a file.

Every peer does the same: it reads the PDF, posts it as multipart, checks that the answer is well-formed XML, writes it
to a temporary file, syncs that, renames it and syncs the directory.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from xml.parsers import expat

import urllib3

GATEWAY = os.environ.get("GATEWAY_URL", "") + "/process"
UPLOADS = Path(os.environ.get("UPLOADS_DIR", ""))
RESULTS = Path(os.environ.get("RESULTS_DIR", ""))

kept = threading.local()  # one pool for each thread, so that its connection is used again


def convert(job_id: str) -> None:
    body, headers = request(job_id)
    answer = pool().request("POST", GATEWAY, body=body, headers=headers, timeout=180, retries=False)
    if answer.status != 200:
        raise RuntimeError(f"the gateway answered {answer.status}")
    keep(job_id, answer.data)


def request(job_id: str) -> tuple[bytes, dict[str, str]]:
    """The body and the headers. Encoding them here is cheaper than through aiohttp's FormData."""
    pdf = (UPLOADS / f"{job_id}.pdf").read_bytes()
    body, content_type = urllib3.encode_multipart_formdata({
        "file": (f"{job_id}.pdf", pdf, "application/pdf"), "mapping": "pt_simon_invoice_v1", "pretty": "1",
    })  # fmt: skip
    return body, {"Content-Type": content_type, "Accept": "application/xml", "X-Correlation-ID": job_id}


def pool() -> urllib3.PoolManager:
    if not hasattr(kept, "pool"):
        kept.pool = urllib3.PoolManager()
    found: urllib3.PoolManager = kept.pool
    return found


def keep(job_id: str, xml: bytes) -> None:
    expat.ParserCreate().Parse(xml, True)
    write(job_id, xml)


def write(job_id: str, xml: bytes) -> None:
    """After a power cut the file is complete or absent: the same steps as convertq's."""
    temporary = RESULTS / f".{job_id}.part"
    with open(temporary, "wb") as sink:
        sink.write(xml)
        sink.flush()
        os.fsync(sink.fileno())
    temporary.rename(RESULTS / f"{job_id}.xml")
    directory = os.open(RESULTS, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
