"""The parameters of a request, from its query and its JSON: checked, or refused with the values that are allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from convertq.queue.errors import Code
from convertq.web.http_error import HttpError
from flask import request

LIMIT, MAX_LIMIT = 50, 200  # Jobs on a page.
MAX_IDS = 1000


def get_choice(name: str, allowed: Sequence[str]) -> str | None:
    text = request.args.get(name) or None
    if text is not None and text not in allowed:
        raise HttpError(400, f"{name} must be one of {', '.join(allowed)}")
    return text


def get_number(name: str, default: int, maximum: int) -> int:
    text = request.args.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= maximum:
        raise HttpError(400, f"{name} must be a whole number from 1 to {maximum}")
    return int(text)


def get_text(name: str) -> str | None:
    text = request.args.get(name) or None
    if text is not None and "\0" in text:
        raise HttpError(400, f"{name} must not contain NUL")
    return text


def get_before() -> UUID | datetime | None:
    """Where a page of a list begins: after the job that `next` of the previous page names, or at a time."""
    text = request.args.get("before") or ""
    if not text:
        return None
    try:
        return UUID(text) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", text) else _timestamp(text)
    except (ValueError, OverflowError):
        raise HttpError(400, "before must be the id of a job, as `next` gives it, or a time in ISO 8601") from None


def _timestamp(text: str) -> datetime:
    at = datetime.fromisoformat(text.replace(" ", "+"))  # In a query, a + that is not encoded means a space.
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def read_retry_request() -> tuple[list[UUID] | None, dict[str, Any]]:
    """The ids of jobs, or a filter for the failed ones; not both."""
    wanted = _json() if request.get_data() else {}
    if not isinstance(wanted, dict) or set(wanted) - {"ids", "code", "dead", "owner"}:
        raise HttpError(400, 'send JSON: {"ids": […]}, or any of "code", "dead", "owner"')
    if "ids" in wanted:
        if len(wanted) > 1:
            raise HttpError(400, "send either ids, or any of code, dead and owner")
        return _ids(wanted["ids"]), {}
    code, dead, owner = wanted.get("code"), wanted.get("dead", False), wanted.get("owner")
    # null is refused: its sender meant one code or one owner, and would retry all jobs.
    if "code" in wanted and code not in list(Code):
        raise HttpError(400, f"code must be one of {', '.join(Code)}; omit it for all codes")
    if not isinstance(dead, bool) or ("owner" in wanted and not _is_text(owner)):
        raise HttpError(400, "dead must be true or false, and owner text; omit either for all jobs")
    return None, {"code": code, "dead": dead, "owner": owner}


def _json() -> Any:
    try:
        return request.get_json(silent=True)
    except RecursionError:  # The JSON is nested too deeply.
        return None


def _is_text(value: Any) -> bool:
    """Whether PostgreSQL can store it: text contains neither NUL nor half of a surrogate pair."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)


def _ids(ids: Any) -> list[UUID]:
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_IDS:
        raise HttpError(400, f"ids must be a list of 1 to {MAX_IDS} job ids")
    try:
        return list(dict.fromkeys(UUID(job_id) for job_id in ids))
    except (ValueError, TypeError, AttributeError):
        raise HttpError(400, "ids must be a list of job ids") from None
