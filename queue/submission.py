"""Recording a submitted file: it becomes a new job, joins the job that its owner has for it, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from convertq.queue.config import Config
from convertq.queue.database.commit import commit
from convertq.queue.database.database import Database
from convertq.queue.errors import FILE_REFUSALS, Code
from convertq.queue.jobs import get_statuses
from convertq.queue.manual_retry import is_waiting, list_needed_jobs, must_be_complete_first
from convertq.queue.owned_jobs import count_active_jobs, lock_owner
from convertq.queue.receiving import ReceivedFile, Stream, UploadReceiver
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import PendingSource, Store
from convertq.queue.submitted_path import open_submitted
from convertq.queue.times import NO_TIMES, Times
from psycopg.rows import DictRow

MAX_NAME_CHARACTERS = 255
#: for each code of FILE_REFUSALS
REFUSAL_MESSAGES = {Code.NOT_PDF: "not a PDF file", Code.TOO_LARGE: "the file is larger than {limit} bytes"}


class SubmissionResult(StrEnum):
    CREATED = "created"
    JOINED = "joined"  # the owner has a job for the same content already
    REQUEUED = "requeued"  # as JOINED, and that job was queued again with the new file
    REFUSED = "refused"


@dataclass(frozen=True)
class Submission:
    """What became of one file. A refused one has a code; its id is None when no job was recorded for it.

    NOT_READY means that the file would start a job over which waits for another job.
    """

    id: UUID | None
    how: SubmissionResult
    code: Code | None = None
    message: str | None = None


@dataclass(frozen=True)
class SubmissionOptions:
    """What the submitter chooses, besides the file."""

    owner: str
    mapping: str
    pretty: bool = True
    priority: int = 0
    after: Sequence[UUID] = ()
    times: Times = NO_TIMES
    max_active: int | None = None  # None: the owner may have any number of unfinished jobs


class TooManyActive(Exception):
    """The owner has as many unfinished jobs as `max_active` allows; nothing was recorded."""


class Submitter:
    def __init__(self, database: Database, store: Store, config: Config, new_id: Callable[[], UUID] = uuid4) -> None:
        self._database, self._store, self._config = database, store, config
        self._receiver = UploadReceiver(store, config, new_id)

    def submit_file(self, path: Path, options: SubmissionOptions) -> Submission:
        """Raises OSError for what is not a readable, regular file, or cannot be stored."""
        with open_submitted(path) as stream:
            return self.submit(stream, path.name, options)

    def submit(self, stream: Stream, name: str, options: SubmissionOptions) -> Submission:
        with self._receiver.receive(stream) as received:
            return self.record(received, name, options)

    def record(self, received: ReceivedFile, name: str, options: SubmissionOptions) -> Submission:
        """One transaction writes the row, and makes the file the job's source. Raises TooManyActive."""
        if received.bytes == 0:
            return Submission(None, SubmissionResult.REFUSED, Code.NOT_PDF, "the file is empty")
        row = _row(received, name, options)
        if received.refusal:
            return self._refuse(row, received.refusal)
        return self._record(row, received.source, options)

    def _record(self, row: dict[str, Any], source: PendingSource, options: SubmissionOptions) -> Submission:
        while True:
            try:
                if done := self._record_once(row, source, options):
                    return done
                # The job with the same content was deleted between the two statements: the next try inserts the row.
            except psycopg.errors.CheckViolation as error:
                if not is_waiting(error):  # If it waits, the next try finds the job that it waits for, and refuses it.
                    raise

    def _record_once(self, row: dict[str, Any], source: PendingSource, options: SubmissionOptions) -> Submission | None:
        return commit(self._database, lambda: self._record_row(row, source, options), self._is_recorded)

    def _record_row(self, row: dict[str, Any], source: PendingSource, options: SubmissionOptions) -> Submission | None:
        job_id, location = row["id"], self._store.source_location(row["id"])
        status = JobStatus.UPLOADED if options.after else JobStatus.QUEUED
        if options.max_active is not None:
            lock_owner(self._database, options.owner)
        if self._database.one("submit_job", **row, status=status, upload_path=location):
            for needed in options.after:
                self._database.run("add_dependency", id=job_id, depends_on=needed)
            self._check_active_jobs(options)
            source.put(job_id)  # last: a failure before this leaves no file behind
            return Submission(job_id, SubmissionResult.CREATED)
        if existing := self._database.one("find_duplicate", **_identity(row)):
            return self._join(existing, row, source, options)
        return None

    def _is_recorded(self, done: Submission | None) -> bool:
        """Whether a submission whose commit was not answered took effect. A job that was to be queued again is judged
        once more: if it was queued, the file joins it."""
        if done is None or done.how in (SubmissionResult.JOINED, SubmissionResult.REFUSED):
            return True
        return done.how is SubmissionResult.CREATED and bool(get_statuses(self._database, [done.id] if done.id else []))

    def _check_active_jobs(self, options: SubmissionOptions) -> None:
        """Called after the row was written, so that the new job is counted too."""
        if options.max_active is None:
            return
        if count_active_jobs(self._database, options.owner) > options.max_active:
            raise TooManyActive

    def _join(
        self, existing: DictRow, row: dict[str, Any], source: PendingSource, options: SubmissionOptions
    ) -> Submission:
        """The existing row is locked: no other session decides the same, and no worker can claim it."""
        job_id = existing["id"]
        if not self._needs_another_run(existing):
            return Submission(job_id, SubmissionResult.JOINED)
        if existing["status"] != JobStatus.CANCELLED and (needed := list_needed_jobs(self._database, job_id)):
            return Submission(job_id, SubmissionResult.REFUSED, Code.NOT_READY, must_be_complete_first(needed))
        location = self._store.source_location(job_id)
        wanted = {name: row[name] for name in ("pretty", "priority", "not_before", "deadline")}
        self._database.run("resubmit_job", id=job_id, upload_path=location, **wanted)
        self._check_active_jobs(options)
        # On a file system without extended attributes, the worker would take the old result for that of the new run.
        self._store.remove_result(job_id)
        source.put(job_id)
        return Submission(job_id, SubmissionResult.REQUEUED)

    def _needs_another_run(self, existing: DictRow) -> bool:
        if existing["status"] == JobStatus.COMPLETE:
            return not self._store.has_result(existing["id"], existing["result_path"])
        return JobStatus(existing["status"]).is_terminal

    def _refuse(self, row: dict[str, Any], code: Code) -> Submission:
        message = REFUSAL_MESSAGES[code].format(limit=self._config.max_upload_bytes)

        def refuse() -> UUID | None:
            if self._database.one("refuse_job", **row, error_code=code, error_message=message):
                return received_id
            existing = self._database.one("find_duplicate", **_identity(row))
            return existing["id"] if existing and existing["error_code"] in FILE_REFUSALS else None

        received_id: UUID = row["id"]
        # A refusal whose commit was lost is recorded again, or found.
        return Submission(commit(self._database, refuse, lambda _: False), SubmissionResult.REFUSED, code, message)


def _row(received: ReceivedFile, name: str, options: SubmissionOptions) -> dict[str, Any]:
    return {
        "id": received.id,
        "owner": options.owner,
        "original_filename": recorded_name(name),
        "bytes": received.bytes,
        "sha256": received.sha256,
        "mapping": options.mapping,
        "pretty": options.pretty,
        "priority": options.priority,
        "not_before": options.times.not_before,
        "deadline": options.times.deadline,
    }


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("owner", "sha256", "mapping", "bytes")}


def recorded_name(name: str) -> str:
    """The base name as text that PostgreSQL can store: bytes that are not UTF-8 are replaced, and NUL is left out."""
    base = name.rpartition("/")[2].replace("\0", "")
    return re.sub("[\ud800-\udfff]", "\ufffd", base)[:MAX_NAME_CHARACTERS]
