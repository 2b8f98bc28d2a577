"""The download of a result: as an attachment, whole or a range of it, and counted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote
from uuid import UUID

from convertq.queue.errors import Code
from convertq.queue.result import Expired, NotReady, count_download, open_result, presign_result
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import OpenResult
from convertq.web.context import web
from convertq.web.http_error import HttpError
from convertq.web.jobs import find_row
from convertq.web.json_response import conditional
from convertq.web.reads import mark_written
from flask import Request, Response
from psycopg.rows import DictRow
from werkzeug.http import dump_options_header
from werkzeug.wsgi import FileWrapper

Found = TypeVar("Found")

PIECE_BYTES = 64 * 1024
MAX_NAME_CHARACTERS = 100
MAX_POSITION = 10**18  # larger than any file


def download(request: Request, owner: str, job_id: UUID) -> Response:
    """No connection to the database is in use while the store is: it may be slow. A replica might not have the job's
    result yet."""
    with web().connections.reading() as database:
        job = find_row(database, owner, job_id)
    if request.method == "GET" and (url := _find(presign_result, job, _attachment(job["original_filename"] or ""))):
        _count(job_id)
        return _redirect(url)
    result = _find(open_result, job)
    try:
        answer = _answer(request, result, job)
        if _is_counted(request, answer):
            _count(job_id)
    except BaseException:
        result.file.close()
        raise
    return answer


def _count(job_id: UUID) -> None:
    with web().connections.transaction() as database:
        count_download(database, job_id)
    mark_written()


def _redirect(url: str) -> Response:
    """The URL is a key to the result for some minutes: nothing may keep it."""
    return Response(status=307, headers={"Location": url, "Cache-Control": "no-store"})


def _find(look_up: Callable[..., Found], job: DictRow, *arguments: str) -> Found:
    try:
        return look_up(job, web().store, *arguments)
    except NotReady as error:
        yet = " yet" if JobStatus(error.status).is_active else ""
        raise HttpError(409, f"the job is {error.status}: there is no result{yet}", Code.NOT_READY) from None
    except Expired:
        raise HttpError(410, "the result is no longer kept: upload the file again", Code.EXPIRED) from None


def _answer(request: Request, result: OpenResult, job: DictRow) -> Response:
    answer = Response(FileWrapper(result.file, PIECE_BYTES), mimetype="application/xml", direct_passthrough=True)
    answer.content_length = result.size
    answer.set_etag(result.etag)
    answer.headers["Content-Disposition"] = _attachment(job["original_filename"] or "")
    answer.headers["Cache-Control"] = "private, no-cache"
    wanted = requested_range(request.headers.get("Range", ""), result.size)
    environ = {name: value for name, value in request.environ.items() if name != "HTTP_RANGE"}
    environ |= {"HTTP_RANGE": wanted} if wanted else {}
    conditional(answer, environ, accept_ranges=True, complete_length=result.size)
    return answer


def requested_range(text: str, size: int) -> str | None:
    """One range in the form that werkzeug reads. A malformed header or several ranges are ignored (RFC 9110, 14.2)."""
    parts = re.fullmatch(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", text, re.IGNORECASE)
    if not parts or parts.groups() == ("", ""):
        return None
    first, last = (_number(digits) if digits else None for digits in parts.groups())
    if first is None:
        return f"bytes=-{min(last or 0, size)}"  # not more than the whole file
    if last is None:
        return f"bytes={first}-"
    return f"bytes={first}-{last}" if first <= last else None


def _number(digits: str) -> int:
    """Python refuses to convert very long numbers; each of them is beyond the end of the file anyway."""
    return int(digits) if len(digits) <= 18 else MAX_POSITION


def _is_counted(request: Request, answer: Response) -> bool:
    """A download counts when its first byte is sent: HEAD does not count, nor does one that is continued."""
    if request.method != "GET" or answer.status_code not in (200, 206):
        return False
    return answer.status_code == 200 or answer.content_range.start == 0


def _attachment(original: str) -> str:
    """`invoice.xml` for `invoice.pdf`. Letters of any language stay; characters of shells and paths go."""
    stem = re.sub(r"\.pdf$", "", original, flags=re.IGNORECASE)
    kept = "".join(char for char in stem if char.isalnum() or char in " ._-()")[:MAX_NAME_CHARACTERS].strip(" .")
    name = f"{kept or 'result'}.xml"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    options = {"filename": plain if plain != ".xml" else "result.xml"}
    if plain != name:
        options["filename*"] = f"UTF-8''{quote(name)}"
    return dump_options_header("attachment", options)
