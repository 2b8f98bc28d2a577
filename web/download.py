"""A result on its way to its owner: opened by its job's id, as an attachment, whole or in part, and counted."""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from typing import BinaryIO
from urllib.parse import quote
from uuid import UUID

from convertq.web.context import web
from convertq.web.jobs import find_row
from convertq.web.json_answer import conditional
from convertq.web.refusal import Refusal
from convertq.worker.errors import Code
from convertq.worker.files import open_regular
from flask import Request, Response
from psycopg.rows import DictRow
from werkzeug.http import dump_options_header
from werkzeug.wsgi import FileWrapper

PIECE = 64 * 1024
NAME_LIMIT = 100  # characters
#: nothing is there, or what convertq never puts there: a symlink, a pipe
NOT_A_RESULT = frozenset({errno.ENOENT, errno.ELOOP, errno.EINVAL})


def download(request: Request, owner: str, job_id: UUID) -> Response:
    with web().connections.transaction() as database:
        job = find_row(database, owner, job_id)
        file = _open_result(job)
        try:
            answer = _answer(request, file, job)
            if _is_counted(request, answer):
                database.run("count_download", id=job_id)
        except BaseException:
            file.close()
            raise
    return answer


def _open_result(job: DictRow) -> BinaryIO:
    if job["status"] != "complete":
        raise Refusal(409, f"the job is {job['status']}: there is no result yet", Code.NOT_READY)
    gone = Refusal(410, "the result is no longer kept: upload the file again", Code.EXPIRED)
    if not job["has_result"]:
        raise gone
    try:
        return open_regular(web().files.result(job["id"]))
    except OSError as error:
        if error.errno in NOT_A_RESULT:
            raise gone from None
        raise


def _answer(request: Request, file: BinaryIO, job: DictRow) -> Response:
    found = os.fstat(file.fileno())
    answer = Response(FileWrapper(file, PIECE), mimetype="application/xml", direct_passthrough=True)
    answer.content_length = found.st_size
    answer.set_etag(f"{found.st_mtime_ns:x}-{found.st_size:x}")
    answer.headers["Content-Disposition"] = _attachment(job["original_filename"] or "")
    answer.headers["Cache-Control"] = "private, no-cache"
    asked = asked_range(request.headers.get("Range", ""), found.st_size)
    environ = {name: value for name, value in request.environ.items() if name != "HTTP_RANGE"}
    environ |= {"HTTP_RANGE": asked} if asked else {}
    conditional(answer, environ, accept_ranges=True, complete_length=found.st_size)
    return answer


def asked_range(text: str, size: int) -> str | None:
    """As werkzeug takes it: one range. What is malformed, or several at once, counts as not asked (RFC 9110, 14.2)."""
    parts = re.fullmatch(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", text, re.IGNORECASE)
    if not parts or parts.groups() == ("", ""):
        return None
    first, last = (_number(digits) if digits else None for digits in parts.groups())
    if first is None:
        return f"bytes=-{min(last or 0, size)}"  # of the end no more than there is
    if last is None:
        return f"bytes={first}-"
    return f"bytes={first}-{last}" if first <= last else None


def _number(digits: str) -> int:
    """Larger than any file is large enough: of very long numbers Python makes none."""
    return int(digits) if len(digits) <= 18 else 10**18


def _is_counted(request: Request, answer: Response) -> bool:
    """Once for each time that the first byte is sent: not for HEAD, nor for what goes on after an interruption."""
    if request.method != "GET" or answer.status_code not in (200, 206):
        return False
    return answer.status_code == 200 or answer.content_range.start == 0


def _attachment(original: str) -> str:
    """`invoice.xml` from `invoice.pdf`; letters of any language stay, what a shell or a path could mean does not."""
    stem = re.sub(r"\.pdf$", "", original, flags=re.IGNORECASE)
    kept = "".join(char for char in stem if char.isalnum() or char in " ._-()")[:NAME_LIMIT].strip(" .")
    name = f"{kept or 'result'}.xml"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    options = {"filename": plain if plain != ".xml" else "result.xml"}
    if plain != name:
        options["filename*"] = f"UTF-8''{quote(name)}"
    return dump_options_header("attachment", options)
