"""The job as a user of any Python queue would write it: `requests` for the gateway, and a result written atomically."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import requests

GATEWAY = os.environ.get("GATEWAY_URL", "") + "/process"
UPLOADS = Path(os.environ.get("UPLOADS_DIR", ""))
RESULTS = Path(os.environ.get("RESULTS_DIR", ""))

kept = threading.local()  # a session for each thread: its connection is kept


def convert(job_id: str) -> None:
    with open(UPLOADS / f"{job_id}.pdf", "rb") as source:
        answer = session().post(
            GATEWAY,
            files={"file": (f"{job_id}.pdf", source, "application/pdf")},
            data={"mapping": "pt_simon_invoice_v1", "pretty": "1"},
            headers={"Accept": "application/xml", "X-Correlation-ID": job_id},
            timeout=180,
        )
    answer.raise_for_status()
    write(job_id, answer.content)


def session() -> requests.Session:
    if not hasattr(kept, "session"):
        kept.session = requests.Session()
    found: requests.Session = kept.session
    return found


def write(job_id: str, xml: bytes) -> None:
    """Whole or not at all, and there after a power cut: the same steps as convertq's."""
    part = RESULTS / f".{job_id}.part"
    with open(part, "wb") as sink:
        sink.write(xml)
        sink.flush()
        os.fsync(sink.fileno())
    part.rename(RESULTS / f"{job_id}.xml")
    directory = os.open(RESULTS, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
