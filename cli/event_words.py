"""What an event's `meta` says, for people. Another program may have written anything there: it is shown as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from convertq.cli.words import moment, precise, shown

Meta = Mapping[str, Any]


def details(meta: Meta, now: datetime) -> str:
    """Who, which attempt, why, how the gateway answered, what went wrong, what is next; then whatever else is known."""
    left, parts = dict(meta), []
    for names, say in SAYINGS:
        known = {name: left[name] for name in names if name in left}
        if known and (words := _said(say, known, now)) is not None:
            parts.append(words)
            left = {name: value for name, value in left.items() if name not in names}
    return shown(", ".join([part for part in parts if part] + [f"{name} {value}" for name, value in left.items()]))


def _said(say: Callable[[Meta, datetime], str], known: Meta, now: datetime) -> str | None:
    try:
        return say(known, now)
    except (TypeError, ValueError):
        return None


def _gateway(meta: Meta, now: datetime) -> str:
    if meta == {"gateway_ok": None}:  # no call was made
        return ""
    answer = f"gateway {meta['gateway_status']}" if meta.get("gateway_status") else "gateway"
    return f"{answer} in {precise(meta['gateway_ms'] / 1000)}" if meta.get("gateway_ms") is not None else answer


def _error(meta: Meta, now: datetime) -> str:
    return ": ".join(str(value) for value in meta.values() if value)


#: who wrote it, where that was no worker and no command
WRITERS = {
    "dependencies": "every job that it waited for is complete",
    "trigger": "noted for another program",
}

#: in their order
SAYINGS: tuple[tuple[tuple[str, ...], Callable[[Meta, datetime], str]], ...] = (
    (("by",), lambda meta, now: WRITERS.get(str(meta["by"]), f"by {meta['by']}")),
    (("reason",), lambda meta, now: str(meta["reason"])),
    (("worker",), lambda meta, now: f"worker {meta['worker']}"),
    (("attempt",), lambda meta, now: f"attempt {meta['attempt']}"),
    (("error_code", "error_message"), _error),
    (("gateway_status", "gateway_ms", "gateway_ok"), _gateway),
    (("duration_ms",), lambda meta, now: f"took {precise(meta['duration_ms'] / 1000)}"),
    (("retry_after",), lambda meta, now: f"again at {moment(datetime.fromisoformat(meta['retry_after']), now)}"),
)
