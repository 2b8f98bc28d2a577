"""The parameters of a request, from its query: checked, or refused with the values that are allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from convertq.web.http_error import HttpError
from flask import request

LIMIT, MAX_LIMIT = 50, 200  # Jobs on a page.


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
