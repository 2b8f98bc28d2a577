"""An upload of one file: it is streamed to disk in constant memory, and becomes a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from convertq.queue.errors import DISK_FULL, Code, StorageError
from convertq.queue.mapping import MappingNotAllowed, choose_mapping
from convertq.queue.owned_jobs import count_active_jobs
from convertq.queue.receiving import ReceivedFile, UploadReceiver
from convertq.queue.submission import Submission, SubmissionOptions, SubmissionResult, Submitter, TooManyActive
from convertq.queue.times import WrongTime, choose_times, parse_moment
from convertq.web.context import web
from convertq.web.http_error import HttpError, job_must_wait, storage_unavailable, too_many_active
from convertq.web.multipart_form import FormPart, form_parts
from convertq.web.pool import WAIT_WITH_A_FILE_SECONDS
from convertq.web.upload_body import OVERHEAD_BYTES, UploadBody, too_large
from flask import Request

PRIORITY = range(-100, 101)
FIELDS = ("mapping", "priority", "pretty", "not_before", "deadline")


class UploadForm:
    """One file, and the fields before and after it."""

    def __init__(self, parts: Iterator[FormPart]) -> None:
        self._parts = parts
        self.fields: dict[str, str] = {}

    def find_file(self) -> FormPart:
        """Reads the fields before the file."""
        for part in self._parts:
            if part.name == "file":
                return part
            self._read_field(part)
        raise HttpError(400, "the form has no part named file")

    def read_rest(self) -> None:
        """Reads the fields after the file. Many clients read no answer before they have sent the whole form."""
        for part in self._parts:
            if part.name == "file":
                raise HttpError(400, "the form has two parts named file: send one file at a time")
            self._read_field(part)

    def _read_field(self, part: FormPart) -> None:
        if part.name not in FIELDS:
            return
        if part.name in self.fields:
            raise HttpError(400, f"the form has the field {part.name} twice")
        self.fields[part.name] = part.read_field()


def receive_upload(request: Request, owner: str) -> Submission:
    """Stores the form's file and records it as a job of `owner`. A file that is refused raises its HttpError."""
    limit = web().config.max_upload_bytes
    if (request.content_length or 0) > limit + OVERHEAD_BYTES:
        raise too_large(limit)
    _check_active_jobs(owner)
    body = UploadBody(request.environ["wsgi.input"], limit, request.content_length)
    form = UploadForm(form_parts(body, request.headers.get("Content-Type", "")))
    file = form.find_file()
    try:
        with UploadReceiver(web().store, web().config).receive(file) as received:
            form.read_rest()
            return record_upload(received, file.filename or "", form.fields, owner)
    except OSError as error:
        raise storage_error(error) from error


def record_upload(received: ReceivedFile, filename: str, fields: Mapping[str, str], owner: str) -> Submission:
    options = _submission_options(fields, owner)
    try:
        begins, ends = (parse_moment(name, fields.get(name)) for name in ("not_before", "deadline"))
        with web().connections.session(WAIT_WITH_A_FILE_SECONDS) as database:
            options = replace(options, times=choose_times(database, begins, ends))
            submission = Submitter(database, web().store, web().config).record(received, filename, options)
    except TooManyActive:
        raise too_many_active(web().config.session_max_active) from None
    except WrongTime as error:
        raise HttpError(400, str(error)) from None
    if submission.code is Code.NOT_READY:
        raise job_must_wait()
    if submission.how is SubmissionResult.REFUSED:
        status = 413 if submission.code is Code.TOO_LARGE else 400
        raise HttpError(status, submission.message or "the file is refused", submission.code)
    return submission


def _submission_options(fields: Mapping[str, str], owner: str) -> SubmissionOptions:
    try:
        mapping = choose_mapping(web().config, fields.get("mapping"))
    except MappingNotAllowed as refusal:
        raise HttpError(422, f"unknown mapping: use one of {', '.join(refusal.allowed)}") from None
    return SubmissionOptions(
        owner, mapping, _read_pretty(fields), _read_priority(fields), max_active=web().config.session_max_active
    )


def _read_pretty(fields: Mapping[str, str]) -> bool:
    text = (fields.get("pretty") or "1").lower()
    if text not in ("1", "0", "true", "false"):
        raise HttpError(400, "pretty must be 1 or 0")
    return text in ("1", "true")


def _read_priority(fields: Mapping[str, str]) -> int:
    """The range is limited, so that no visitor gets ahead of the jobs that an operator has put first."""
    text = fields.get("priority") or "0"
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text) or int(text) not in PRIORITY:
        raise HttpError(400, f"priority must be a whole number from {PRIORITY[0]} to {PRIORITY[-1]}")
    return int(text)


def _check_active_jobs(owner: str) -> None:
    """Runs before the body is read: a visitor who may not add a job need not send the file."""
    with web().connections.transaction() as database:
        if count_active_jobs(database, owner) >= web().config.session_max_active:
            raise too_many_active(web().config.session_max_active)


def storage_error(error: OSError) -> HttpError:
    if isinstance(error, StorageError):
        return storage_unavailable()
    reason = "the disk is full" if error.errno in DISK_FULL else "the disk reports an error"
    return HttpError(507, f"the file could not be stored: {reason}", Code.IO_ERROR)
