"""An event's `meta` in words. Another program may have written anything there, which is shown as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from convertq.cli.formatting import precise, shown, timestamp

Meta = Mapping[str, Any]


def details(meta: Meta, now: datetime) -> str:
    """Who, which attempt, why, what went wrong, how the gateway answered, what is next; then all other keys."""
    left, parts = dict(meta), []
    for names, render in RENDERERS:
        known = {name: left[name] for name in names if name in left}
        if known and (words := _rendered(render, known, now)) is not None:
            parts.append(words)
            left = {name: value for name, value in left.items() if name not in names}
    return shown(", ".join([part for part in parts if part] + [f"{name} {value}" for name, value in left.items()]))


def _rendered(render: Callable[[Meta, datetime], str], known: Meta, now: datetime) -> str | None:
    try:
        return render(known, now)
    except (TypeError, ValueError):
        return None


def _gateway(meta: Meta, now: datetime) -> str:
    if meta == {"gateway_ok": None}:  # no call was made
        return ""
    answer = f"gateway {meta['gateway_status']}" if meta.get("gateway_status") else "gateway"
    return f"{answer} in {precise(meta['gateway_ms'] / 1000)}" if meta.get("gateway_ms") is not None else answer


def _error(meta: Meta, now: datetime) -> str:
    return ": ".join(str(value) for value in meta.values() if value)


#: Who wrote the event, where that was no worker and no command.
WRITERS = {
    "dependencies": "every job that it waited for is complete",
    "trigger": "noted for another program",
}

#: In the order of the sentence.
RENDERERS: tuple[tuple[tuple[str, ...], Callable[[Meta, datetime], str]], ...] = (
    (("by",), lambda meta, now: WRITERS.get(str(meta["by"]), f"by {meta['by']}")),
    (("reason",), lambda meta, now: str(meta["reason"])),
    (("worker",), lambda meta, now: f"worker {meta['worker']}"),
    (("attempt",), lambda meta, now: f"attempt {meta['attempt']}"),
    (("error_code", "error_message"), _error),
    (("gateway_status", "gateway_ms", "gateway_ok"), _gateway),
    (("duration_ms",), lambda meta, now: f"took {precise(meta['duration_ms'] / 1000)}"),
    (("retry_after",), lambda meta, now: f"again at {timestamp(datetime.fromisoformat(meta['retry_after']), now)}"),
)
