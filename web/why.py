"""One sentence for the visitor whose file it is: where the job is, why, and what happens next.

It names no host, no command and no time of the server's clock, and does not change while nothing happens: a page that
polls is answered in a few bytes.
"""

from __future__ import annotations

from convertq.queue.explain import Explanation, State

BUSY = "Converter busy — jobs will resume automatically"
WAITS_FOR_OTHERS = "Stored; it is queued as soon as what it waits for is complete"
EXPIRED = "Converted, but the result has expired: upload the file again"

#: {attempts}: `2 of 3`; {reason}: why the last attempt failed.
SENTENCES = {
    State.STORED: WAITS_FOR_OTHERS,
    State.BLOCKED: WAITS_FOR_OTHERS,
    State.RELEASED: WAITS_FOR_OTHERS,
    State.PAUSED: "Paused by the operator of this service",
    State.HELD: BUSY,
    State.LIMITED: "Waits until other files of yours are converted",
    State.PARKED: "Set aside: it waits until the operator lets it go on",
    State.SCHEDULED: "Waits until the time before which it must not begin",
    State.RETRYING: "Waits for attempt {attempts}: {reason}",
    State.QUEUED: "Waits for its turn",
    State.PROCESSING: "Being converted, attempt {attempts}",
    State.LOST: "Being converted, attempt {attempts}",
    State.COMPLETE: "Converted",
    State.EXPIRED: EXPIRED,
    State.MISSING: EXPIRED,
    State.REFUSED: "Refused: {reason}",
    State.FAILED: "Failed: {reason}",
    State.GIVEN_UP: "Given up: {reason}",
    State.CANCELLED: "Cancelled before it was converted",
}


def why(found: Explanation, *, has_workers: bool) -> str:
    if found.state is State.QUEUED and not has_workers:
        return "Waits: no converter is running just now"
    unknown = "the attempt before failed" if found.state is State.RETRYING else "no reason is recorded"
    attempts = f"{found.attempt} of {found.most_attempts}"
    return SENTENCES[found.state].format(attempts=attempts, reason=found.reason or unknown)
