"""The replay of a job's events: each must be a legal transition, and the last must leave the row as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.faulty_gateway import GOOD
from tests.waiting import Row

#: event -> the states that it may come from, and the state that it leads to
TRANSITIONS: dict[str, tuple[set[str], str]] = {
    "created": ({""}, "uploaded"),
    "queued": ({"uploaded", "failed", "complete", "cancelled"}, "queued"),
    "processing": ({"queued"}, "processing"),
    "retry": ({"processing", "failed", "cancelled"}, "queued"),
    "requeued": ({"processing"}, "queued"),
    "reclaimed": ({"processing"}, "queued"),
    "complete": ({"processing"}, "complete"),
    "failed": ({"uploaded", "queued", "processing"}, "failed"),
    "cancelled": ({"uploaded", "queued", "processing"}, "cancelled"),
}
BY_HAND = {("retry", "manual"), ("queued", "resubmitted")}
#: a requeue for one of these reasons gives the attempt back
UNCOUNTED = {
    "shutdown", "connection lost during the claim", "storage", "the claim was lost",
    "the job before it took too long", "the job before it could not be converted",
}  # fmt: skip
#: or for one that ends like this
NOT_BEGUN = ", not begun"


def replay(events: Sequence[Row], row: Row, max_attempts: int) -> Iterator[str]:
    """What is wrong with this history, in words that follow the job's id."""
    state, attempts, completions = "", 0, 0
    for event in events:
        kind, meta = event["event_type"], event["meta"]
        before, after = TRANSITIONS[kind]
        by_hand = (kind, meta.get("reason")) in BY_HAND
        if state not in before or (kind == "retry" and by_hand != (state in ("failed", "cancelled"))):
            yield f"went from {state or 'nothing'} by the event {kind} {meta}"
        if kind == "cancelled" and meta.get("from", "processing") != state:
            yield f"was cancelled from {meta.get('from', 'processing')}, and it was {state}"
        attempts -= kind == "cancelled" and state == "processing"
        state = meta.get("to", after)
        if by_hand:
            attempts = completions = 0
        elif kind == "processing":
            attempts += 1
            if meta["attempt"] != attempts or attempts > max_attempts:
                yield f"began attempt {meta['attempt']} as number {attempts} of {max_attempts}"
        elif gives_attempt_back(event):
            attempts -= 1
        elif kind == "complete":
            completions += 1
        elif kind == "failed":
            yield from _unexpected_failure(row, meta)
    if state != row["status"]:
        yield f"is {row['status']}, and its events end in {state}"
    if attempts != row["attempt_count"]:
        yield f"has attempt_count {row['attempt_count']}, and its events say {attempts}"
    if completions != (row["status"] == "complete"):
        yield f"is {row['status']} with {completions} completions since its last retry by hand"


def gives_attempt_back(event: Row) -> bool:
    reason = str(event["meta"].get("reason"))
    return event["event_type"] == "requeued" and (reason in UNCOUNTED or reason.endswith(NOT_BEGUN))


def _unexpected_failure(row: Row, meta: Row) -> Iterator[str]:
    """Later retried by hand, so that the row does not show it: only a full disk fails a good job."""
    refused = row["mapping"] != GOOD and meta["error_code"] == "GW_4XX"
    full = meta["error_code"] == "IO_ERROR" and "the disk is full" in meta["error_message"]
    if not refused and not full:
        yield f"({row['mapping']}) failed in the storm: {meta}"
