"""Pauses grow with failures in a row, and begin again after a success."""

from __future__ import annotations

from convertq.queue.backoff import Backoff
from convertq.queue.wait import PAUSES_SECONDS
from convertq.worker.supervisor.slot import Slot
from tenacity import wait_exponential


def test_pauses_grow_up_to_their_limit_and_begin_again_after_a_reset() -> None:
    backoff = Backoff(wait_exponential(multiplier=0.1, max=0.5))
    assert [backoff.next_pause_seconds() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.next_pause_seconds() == 0.1


def test_only_the_third_quick_death_in_a_row_costs_a_pause() -> None:
    backoff = Slot(1).backoff
    assert [backoff.next_pause_seconds() for _ in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]


def test_a_caller_that_waits_for_jobs_polls_less_and_less_often_down_to_once_a_second() -> None:
    backoff = Backoff(PAUSES_SECONDS)
    assert [round(backoff.next_pause_seconds(), 3) for _ in range(6)] == [0.2, 0.3, 0.45, 0.675, 1, 1]
