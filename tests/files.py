"""The paths of a directory store, for tests that put files there or look at them; the store itself tells none."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed
from convertq.queue.store.directory import DirectoryStore


class Files(DirectoryStore):
    def source(self, job_id: UUID) -> Path:
        return self.uploads / f"{job_id}.pdf"

    def result(self, job_id: UUID) -> Path:
        return self.results / f"{job_id}.xml"

    def temporary_result(self, job_id: UUID, attempt: int, holder: str) -> Path:
        return Path(self.temporary_location(job_id, attempt, holder))

    def temporary_source(self, job_id: UUID) -> Path:
        return self.uploads / f".{job_id}.0.upload.part"

    def converted(self, job: ClaimedJob, xml: bytes = b"<mine/>") -> Completed:
        """What an attempt returns that wrote this document."""
        result = self.new_result(job)
        with result.create() as sink:
            sink.write(xml)
            result.finish(sink)
        return Completed(result.location, result, gateway_status=200, gateway_ms=1)

    def left(self, job: ClaimedJob) -> Completed:
        """What an attempt returns that found a whole result, and made no call."""
        return Completed(str(self.result(job.id)))
