"""top's keyboard: keys are known however their bytes arrive, and the terminal is restored."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest
from convertq.cli.top.keys import Keyboard, single_keys


@pytest.fixture
def terminal() -> Iterator[int]:
    master, slave = pty.openpty()
    yield slave
    os.close(master)
    os.close(slave)


def flags(descriptor: int) -> int:
    flags: int = termios.tcgetattr(descriptor)[3]
    return flags


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["quit"]),
        (b"jk", ["down", "up"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"rf/?\x0c", ["retry", "filter", "filter", "help", "redraw"]),
        (b"\x1b[1;5A", []),
        (b"\x1b[15~r", ["retry"]),
        (b"xyz\xff\n", []),
    ],
)
def test_each_key_has_its_name_and_unknown_ones_are_nothing(typed: bytes, keys: list[str]) -> None:
    assert Keyboard().decode(typed) == keys


def test_an_arrow_that_comes_byte_by_byte_is_one_key() -> None:
    keyboard = Keyboard()
    assert [keyboard.decode(byte) for byte in (b"\x1b", b"[", b"B")] == [[], [], ["down"]]


def test_escape_does_not_swallow_the_next_key() -> None:
    keyboard = Keyboard()
    assert keyboard.decode(b"\x1b") == []
    assert keyboard.decode(b"q") == ["quit"]


def test_the_end_of_input_is_noticed() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(EOFError):
        Keyboard().read(reader)
    os.close(reader)


def test_keys_come_singly_and_unseen_and_control_c_stays_a_signal(terminal: int) -> None:
    with single_keys(terminal):
        assert not flags(terminal) & (termios.ECHO | termios.ICANON)
        assert flags(terminal) & termios.ISIG


def test_the_terminal_is_as_before_after_an_error(terminal: int) -> None:
    before = termios.tcgetattr(terminal)
    with pytest.raises(ZeroDivisionError), single_keys(terminal):
        _ = 1 / 0
    assert termios.tcgetattr(terminal) == before
