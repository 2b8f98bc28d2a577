"""The form of a page without a script: many files in one request, each of them stored as a job when it has arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convertq.queue.errors import FILE_REFUSALS, Code
from convertq.queue.quantities import counted, size
from convertq.queue.receiving import UploadReceiver
from convertq.web.context import web
from convertq.web.http_error import HttpError
from convertq.web.multipart_form import FormPart, form_parts
from convertq.web.upload import record_upload, storage_error
from convertq.web.upload_body import OVERHEAD_BYTES, UploadBody
from flask import Request

MAX_FILES = 18  # The page's script sends each file in a request of its own and has no such limit.


@dataclass
class BulkResult:
    """How many files became jobs, were refused, or exceeded the visitor's number of unfinished jobs."""

    sent: int = 0
    refused: int = 0
    full: int = 0

    def as_message(self) -> dict[str, str]:
        counts = {
            "uploaded": self.sent,
            "not accepted": self.refused,
            "not taken, because many of yours are unfinished: send them again later": self.full,
        }
        text = ", ".join(f"{counted(number, 'file')} {what}" for what, number in counts.items() if number)
        return {"tone": "bad" if self.refused or self.full else "good", "text": f"{text}."}


def receive_bulk_upload(request: Request, owner: str) -> BulkResult:
    """Files that are refused are counted, and are listed with their reason. Raises HttpError when none was sent."""
    limit = web().config.max_upload_bytes * MAX_FILES
    if (request.content_length or 0) > limit + OVERHEAD_BYTES:
        raise HttpError(413, f"the files are larger than {size(limit)} together: send fewer at a time", Code.TOO_LARGE)
    body = UploadBody(request.environ["wsgi.input"], limit, request.content_length)
    result, files = BulkResult(), 0
    fields: dict[str, str] = {}
    for part in form_parts(body, request.headers.get("Content-Type", "")):
        if part.name == "mapping":
            fields["mapping"] = part.read_field()
        elif part.name == "file" and part.filename:
            files += 1
            if files > MAX_FILES:
                raise HttpError(400, f"the first {MAX_FILES} files were taken: send the others in a form of their own")
            _receive_file(part, fields, owner, result)
    if not files:
        raise HttpError(400, "no file was chosen: go back, choose one or more PDF files, and send them again")
    return result


def _receive_file(part: FormPart, fields: Mapping[str, str], owner: str, result: BulkResult) -> None:
    try:
        with UploadReceiver(web().store, web().config).receive(part) as received:
            record_upload(received, part.filename or "", fields, owner)
        result.sent += 1
    except OSError as error:
        raise storage_error(error) from error
    except HttpError as error:
        if error.code in (*FILE_REFUSALS, Code.NOT_READY):
            result.refused += 1
        elif error.status == 429:
            result.full += 1
        else:
            raise
