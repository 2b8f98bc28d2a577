"""Long transfers from and to the storage: one that moves is no hung one, and one that crawls ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from convertq.queue.store.s3_answer import SLOWEST_BYTES_PER_SECOND, SlowTransfer, TransferClock
from convertq.worker.loop.attempt_monitor import AttemptMonitor

from tests.jobs import config


def test_a_transfer_that_moves_restarts_the_time_of_a_stuck_worker() -> None:
    attempt = SimpleNamespace(bytes_moved=0, call=SimpleNamespace(ends_at=None))
    job = SimpleNamespace(lease_ends=float("inf"))
    stopping, cancels = SimpleNamespace(is_grace_over=False), SimpleNamespace(take_for_attempt=lambda: False)
    shown: list[int] = []
    nothing = cast("Any", None)
    monitor = AttemptMonitor(
        config(), cast("Any", job), cast("Any", attempt), nothing, cast("Any", stopping), nothing,
        cast("Any", cancels), lambda job: shown.append(attempt.bytes_moved),
    )  # fmt: skip
    for moved in (0, 0, 5, 5, 9):
        attempt.bytes_moved = moved
        monitor.check()
    assert shown == [5, 9]


def test_only_a_transfer_that_is_too_slow_on_average_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("convertq.queue.store.s3_answer.time.monotonic", lambda: now[0])
    clock = TransferClock(30)
    for moved in (10 * SLOWEST_BYTES_PER_SECOND, SLOWEST_BYTES_PER_SECOND, 1):
        clock.start()
        now[0] += 10
        clock.stop(moved)
    now[0] += 1000  # a reader that pauses costs the transfer nothing
    clock.start()
    now[0] += 12
    with pytest.raises(SlowTransfer):
        clock.stop(1)
