"""Back-off for loops that wait for events: they get the next pause as a value instead of sleeping inside tenacity."""

from __future__ import annotations

from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base


class Backoff:
    """Counts failures in a row. One of tenacity's wait strategies gives the pause that follows each of them."""

    def __init__(self, strategy: wait_base) -> None:
        self._strategy = strategy
        self.reset()

    def reset(self) -> None:
        self._failures = 0

    def next_pause_seconds(self) -> float:
        self._failures += 1
        return pause_after(self._failures, self._strategy)


def pause_after(failures: int, strategy: wait_base) -> float:
    """The pause that follows this many failures in a row, in the unit in which the strategy was given its numbers."""
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = failures
    return strategy(state)
