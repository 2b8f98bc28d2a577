"""The keys that convertq makes below a prefix. Only these are ever read, listed or deleted."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.directory_listing import ID
from convertq.queue.store.protocol import JobId

SHA256_DIGITS = 16  # of the result, in its key


class ResultKey(NamedTuple):
    job_id: str
    run: int
    attempt: int
    sha256_start: str


class Keys:
    def __init__(self, url: StorageUrl) -> None:
        self._url = url
        prefix = re.escape(url.prefix)
        self.sources, self.results, self.probes = (f"{url.prefix}{name}/" for name in ("uploads", "results", "probes"))
        self._source = re.compile(rf"{prefix}uploads/{ID}\.pdf")
        self._result = re.compile(rf"{prefix}results/{ID}/([0-9]{{1,9}})\.([0-9]{{1,9}})-([0-9a-f]{{16}})\.xml")
        self._probe = re.compile(rf"{prefix}probes/{ID}")

    def source(self, job_id: JobId) -> str:
        return f"{self.sources}{job_id}.pdf"

    def result(self, job_id: JobId, run: int, attempt: int, sha256: str) -> str:
        """It never changes: another attempt or another content has another key."""
        return f"{self.results}{job_id}/{run}.{attempt}-{sha256[:SHA256_DIGITS]}.xml"

    def results_of(self, job_id: JobId) -> str:
        return f"{self.results}{job_id}/"

    def probe(self, probe_id: UUID) -> str:
        return f"{self.probes}{probe_id}"

    def read_source(self, key: str) -> UUID | None:
        return _job_id(self._source.fullmatch(key))

    def read_probe(self, key: str) -> UUID | None:
        return _job_id(self._probe.fullmatch(key))

    def read_result(self, key: str) -> ResultKey | None:
        match = self._result.fullmatch(key)
        return ResultKey(match[1], int(match[2]), int(match[3]), match[4]) if match else None

    def key_of(self, location: str) -> str | None:
        """None when the location is not in this bucket."""
        start = self._url.location_of("")
        return location.removeprefix(start) if location.startswith(start) else None

    def result_key_of(self, job_id: UUID, location: str | None) -> str | None:
        """None unless the row names a result of this very job: another program may have written the row."""
        key = self.key_of(location) if location else None
        result = self.read_result(key) if key else None
        return key if result and result.job_id == str(job_id) else None


def _job_id(match: re.Match[str] | None) -> UUID | None:
    return UUID(match[1]) if match else None
