"""A job's result, opened for reading, and the count of its downloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from convertq.queue.database.database import Database
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import OpenResult, Store


class NotReady(Exception):
    """The job is not complete: `status` says where it is."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Expired(Exception):
    """The job is complete, and its result is no longer kept."""


def open_result(job: Mapping[str, Any], store: Store) -> OpenResult:
    """`job` has id, status and result_path. Raises NotReady or Expired, and OSError where the store cannot be read."""
    _require_complete(job)
    try:
        return store.open_result(job["id"], job["result_path"])
    except FileNotFoundError:
        raise Expired from None


def presign_result(job: Mapping[str, Any], store: Store, name: str) -> str | None:
    """A URL from which a browser can load it; None where this process passes it on. Raises as open_result does."""
    _require_complete(job)
    try:
        return store.presign_result(job["id"], job["result_path"], name)
    except FileNotFoundError:
        raise Expired from None


def _require_complete(job: Mapping[str, Any]) -> None:
    if job["status"] != JobStatus.COMPLETE:
        raise NotReady(job["status"])


def count_download(database: Database, job_id: UUID) -> None:
    database.run("count_download", id=job_id)
