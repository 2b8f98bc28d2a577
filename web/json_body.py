"""The JSON of a request: read, or refused with the names that are allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from convertq.web.http_error import HttpError
from flask import request


def read_json() -> Any:
    """An empty body is an empty object; None is what cannot be read."""
    try:
        return request.get_json(silent=True) if request.get_data() else {}
    except RecursionError:  # The JSON is nested too deeply.
        return None


def read_object(*names: str) -> dict[str, Any]:
    """Other names are refused."""
    wanted = read_json()
    if not isinstance(wanted, dict) or set(wanted) - set(names):
        raise HttpError(400, f"send JSON, an object with any of {', '.join(names)}")
    return wanted


def get_name(wanted: Mapping[str, Any], name: str) -> str | None:
    """null is refused: its sender meant one, and would get all."""
    if name in wanted and not (is_text(wanted[name]) and wanted[name]):
        raise HttpError(400, f"{name} must be text; omit it for all")
    return wanted.get(name)


def is_text(value: Any) -> bool:
    """Whether PostgreSQL can store it: text contains neither NUL nor half of a surrogate pair."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)
