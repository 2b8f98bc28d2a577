"""An operator's change to many jobs: which ones, by id or by a filter, and whether it is only a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from convertq.queue.errors import Code
from convertq.queue.status import ACTIVE
from convertq.web.http_error import HttpError
from convertq.web.json_body import is_text, read_json

MAX_IDS = 1000
#: How a request is made, whatever it changes. A page sends several with a limit: it shows the progress in between.
OPTIONS = {"dry_run", "limit", "skip"}


@dataclass(frozen=True)
class BulkRequest:
    ids: list[UUID] | None  # None: those that match the filters
    filters: Mapping[str, Any]
    dry_run: bool = False
    cascade: bool = False
    limit: int | None = None  # change at most so many
    skip: int = 0  # of those that match, oldest first

    def part_of(self, found: Sequence[UUID]) -> Sequence[UUID]:
        return found[self.skip :][: self.limit]


def read_retry_request() -> BulkRequest:
    """The ids of jobs, or a filter for the failed ones; not both."""
    wanted = _read({"ids", "code", "dead", "owner"})
    if (ids := _read_ids(wanted, "any of code, dead and owner")) is not None:
        return BulkRequest(ids, {}, **_options(wanted))
    code, dead = wanted.get("code"), wanted.get("dead", False)
    # null is refused: its sender meant one code or one owner, and would retry all jobs.
    if "code" in wanted and code not in list(Code):
        raise HttpError(400, f"code must be one of {', '.join(Code)}; omit it for all codes")
    if not isinstance(dead, bool):
        raise HttpError(400, "dead must be true or false; omit it for all jobs")
    return BulkRequest(None, {"code": code, "dead": dead, "owner": _text(wanted, "owner")}, **_options(wanted))


def read_cancel_request() -> BulkRequest:
    """The ids of jobs, or a filter for the unfinished ones, which must not be empty: it would cancel everything."""
    wanted = _read({"ids", "owner", "mapping", "status", "cascade"})
    cascade = wanted.pop("cascade", False)
    if not isinstance(cascade, bool):
        raise HttpError(400, "cascade must be true or false")
    if (ids := _read_ids(wanted, "any of owner, mapping and status")) is not None:
        return BulkRequest(ids, {}, cascade=cascade, **_options(wanted))
    status = wanted.get("status")
    if "status" in wanted and status not in list(ACTIVE):
        raise HttpError(400, f"status must be one of {', '.join(ACTIVE)}; omit it for all of them")
    filters = {"owner": _text(wanted, "owner"), "mapping": _text(wanted, "mapping"), "status": status}
    if all(value is None for value in filters.values()):
        raise HttpError(400, "name ids, or any of owner, mapping and status")
    return BulkRequest(None, filters, cascade=cascade, **_options(wanted))


def _read(known: set[str]) -> dict[str, Any]:
    wanted = read_json()
    if not isinstance(wanted, dict) or set(wanted) - known - OPTIONS:
        names = ", ".join(f'"{name}"' for name in sorted(known - {"ids"}))
        raise HttpError(400, f'send JSON: {{"ids": […]}}, or any of {names}')
    return wanted


def _read_ids(wanted: Mapping[str, Any], others: str) -> list[UUID] | None:
    if "ids" not in wanted:
        return None
    if set(wanted) - OPTIONS != {"ids"}:
        raise HttpError(400, f"send either ids, or {others}")
    return _ids(wanted["ids"])


def _options(wanted: Mapping[str, Any]) -> dict[str, Any]:
    dry_run, limit, skip = wanted.get("dry_run", False), wanted.get("limit", MAX_IDS), wanted.get("skip", 0)
    if not isinstance(dry_run, bool):
        raise HttpError(400, "dry_run must be true or false")
    if not (_is_whole(limit) and _is_whole(skip) and 1 <= limit <= MAX_IDS and 0 <= skip < 2**31):
        raise HttpError(400, f"limit must be a whole number from 1 to {MAX_IDS}, and skip one from 0")
    return {"dry_run": dry_run, "limit": int(limit) if "limit" in wanted else None, "skip": int(skip)}


def _is_whole(value: Any) -> bool:
    """In JSON, 5.0 is a whole number too."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _text(wanted: Mapping[str, Any], name: str) -> str | None:
    value = wanted.get(name)
    if name in wanted and not is_text(value):
        raise HttpError(400, f"{name} must be text; omit it for all jobs")
    return value


def _ids(ids: Any) -> list[UUID]:
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_IDS:
        raise HttpError(400, f"ids must be a list of 1 to {MAX_IDS} job ids")
    try:
        return list(dict.fromkeys(UUID(job_id) for job_id in ids))
    except (ValueError, TypeError, AttributeError):
        raise HttpError(400, "ids must be a list of job ids") from None
