"""What a request asks for, read from its query and its JSON: checked, or refused with what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from convertq.web.refusal import Refusal
from convertq.worker.errors import Code
from flask import request

LIMIT, MAX_LIMIT = 50, 200  # jobs on a page
MAX_IDS = 1000


def asked_choice(name: str, allowed: Sequence[str]) -> str | None:
    text = request.args.get(name) or None
    if text is not None and text not in allowed:
        raise Refusal(400, f"{name} is one of {', '.join(allowed)}")
    return text


def asked_number(name: str, default: int, most: int) -> int:
    text = request.args.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise Refusal(400, f"{name} is a whole number from 1 to {most}")
    return int(text)


def asked_text(name: str) -> str | None:
    text = request.args.get(name) or None
    if text is not None and "\0" in text:
        raise Refusal(400, f"{name} holds a character that no text has")
    return text


def asked_before() -> UUID | datetime | None:
    """Where a page of a list begins: behind a job, whose id `next` gives, or behind a moment."""
    text = request.args.get("before") or ""
    if not text:
        return None
    try:
        return UUID(text) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", text) else _moment(text)
    except (ValueError, OverflowError):
        raise Refusal(400, "before is a job's id, as `next` gives it, or a time in ISO 8601") from None


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text.replace(" ", "+"))  # a + that was not encoded
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def asked_retries() -> tuple[list[UUID] | None, dict[str, Any]]:
    """Job ids, or what to look for among the failed; not both."""
    wanted = _json() if request.get_data() else {}
    if not isinstance(wanted, dict) or set(wanted) - {"ids", "code", "dead", "owner"}:
        raise Refusal(400, 'send JSON: {"ids": […]}, or any of "code", "dead", "owner"')
    if "ids" in wanted:
        if len(wanted) > 1:
            raise Refusal(400, "name ids, or choose by code, dead and owner: not both")
        return _ids(wanted["ids"]), {}
    code, dead, owner = wanted.get("code"), wanted.get("dead", False), wanted.get("owner")
    if code is not None and code not in list(Code):
        raise Refusal(400, f"code is one of {', '.join(Code)}")
    if not isinstance(dead, bool) or not (owner is None or _is_text(owner)):
        raise Refusal(400, "dead is true or false, and owner is text")
    return None, {"error_code": code, "dead_only": dead, "owner": owner}


def _json() -> Any:
    try:
        return request.get_json(silent=True)
    except RecursionError:  # brackets in brackets, as no program writes them
        return None


def _is_text(value: Any) -> bool:
    """That PostgreSQL can have: no NUL, and no half of a character."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)


def _ids(given: Any) -> list[UUID]:
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_IDS:
        raise Refusal(400, f"ids is a list of 1 to {MAX_IDS} job ids")
    try:
        return list(dict.fromkeys(UUID(job_id) for job_id in given))
    except (ValueError, TypeError, AttributeError):
        raise Refusal(400, "ids is a list of job ids") from None
