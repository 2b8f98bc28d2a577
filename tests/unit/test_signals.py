"""Signals as data: noted at once, acted on by the loop, and never by the wrong process."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from convertq.queue.signals import Signals, blocked
from convertq.worker.loop.stopping import HANDLED, Stopping
from convertq.worker.supervisor.wake_up import WakeUp

from tests.waiting import eventually


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    made = Signals(HANDLED)
    yield made
    made.close()
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_nothing_came(signals: Signals) -> None:
    assert signals.wait(0) == ([], set())


def test_signals_come_in_their_order_and_once(signals: Signals) -> None:
    send(signal.SIGTERM)
    send(signal.SIGQUIT)
    assert signals.wait(None) == ([signal.SIGTERM, signal.SIGQUIT], set())
    assert signals.wait(0) == ([], set())


def test_a_signal_cuts_a_wait_short(signals: Signals) -> None:
    threading.Timer(0.05, send, [signal.SIGTERM]).start()
    assert signals.wait(30)[0] == [signal.SIGTERM]


def test_another_descriptor_ends_the_wait_and_is_named(signals: Signals) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    assert signals.wait(30, reader) == ([], {reader})
    os.close(writer)
    os.close(reader)


def test_a_flood_of_signals_neither_blocks_nor_breaks(signals: Signals) -> None:
    for _ in range(100_000):
        send(signal.SIGTERM)
    assert signal.SIGTERM in signals.wait(0)[0]


def test_a_blocked_signal_waits_for_the_end_of_the_block(signals: Signals) -> None:
    with blocked(HANDLED) as before:
        assert not set(HANDLED) & before
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # to this thread: another may not block it
        assert signals.wait(0)[0] == []
    assert signals.wait(5)[0] == [signal.SIGTERM]


def test_of_many_processes_that_wait_for_one_descriptor_one_is_woken() -> None:
    wake, (heard, told), waiting = WakeUp(), os.pipe(), []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            Signals(HANDLED).wait_with_others(30, wake.descriptor)
            os.write(told, b"!")  # and leaves the wake-up there: it would wake the others too
            signal.pause()
        waiting.append(pid)
    try:
        eventually(lambda: all(sleeps(pid) for pid in waiting), what="all wait")
        for woken in (1, 2, 3):
            wake.post()
            assert select.select([heard], [], [], 5)[0]
            assert os.read(heard, 10) == b"!"
            assert not select.select([heard], [], [], 0.2)[0], f"more than {woken} were woken"
    finally:
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_signal_ends_the_wait_with_others(signals: Signals) -> None:
    wake = WakeUp()
    send(signal.SIGTERM)
    assert signals.wait_with_others(5, wake.descriptor) == [signal.SIGTERM]
    assert signals.wait_with_others(0, wake.descriptor) == []


def test_a_child_with_its_own_pipe_does_not_signal_its_parent(signals: Signals) -> None:
    pid = os.fork()
    if pid == 0:
        signals.close()
        mine = Signals(HANDLED)
        send(signal.SIGTERM)
        os._exit(0 if mine.wait(5)[0] == [signal.SIGTERM] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert signals.wait(0)[0] == []


def test_without_a_signal_there_is_no_end(signals: Signals) -> None:
    stopping = Stopping(signals, grace_seconds=60)
    assert not stopping
    assert not stopping.is_grace_over


def test_the_first_signal_leaves_the_grace(signals: Signals) -> None:
    stopping = Stopping(signals, grace_seconds=60)
    send(signal.SIGTERM)
    assert stopping
    assert not stopping.is_grace_over


def test_a_repeated_sigterm_does_not_lengthen_the_grace(signals: Signals) -> None:
    stopping = Stopping(signals, grace_seconds=0.05)
    send(signal.SIGTERM)
    stopping.pause(0)

    def over() -> bool:
        send(signal.SIGTERM)
        stopping.pause(0)
        return stopping.is_grace_over

    eventually(over, what="the end of the grace")


@pytest.mark.parametrize("first", [[], [signal.SIGTERM]])
def test_sigquit_ends_the_grace_at_once(signals: Signals, first: list[signal.Signals]) -> None:
    stopping = Stopping(signals, grace_seconds=3600)
    for number in [*first, signal.SIGQUIT]:
        send(number)
    stopping.pause(0)
    assert stopping.is_grace_over


def test_a_pause_ends_after_its_time_too(signals: Signals) -> None:
    begun = time.monotonic()
    Stopping(signals, grace_seconds=1).pause(0.01)
    assert time.monotonic() - begun >= 0.01
