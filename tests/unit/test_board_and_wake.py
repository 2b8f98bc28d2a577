"""Owns the promises of what workers and supervisor share: the board's rows, and one wake-up for one worker."""

from __future__ import annotations

import os
import select
import time

import pytest
from convertq.worker.board import Board, Row
from convertq.worker.wake import Wake

EMPTY = Row(connected=False, busy=False, held=False, deadline=0, jobs=0)
ROW = Row(connected=True, busy=True, held=True, deadline=time.monotonic() + 0.123456, jobs=2**40)


def in_a_child(step: object) -> None:
    """Runs it in a forked process, as a worker would, and waits for its end."""
    assert callable(step)
    pid = os.fork()
    if pid == 0:
        try:
            step()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_new_board_is_empty() -> None:
    assert [Board(2).read(slot) for slot in (1, 2)] == [EMPTY, EMPTY]


def test_a_row_is_read_as_it_was_written_and_its_neighbours_stay() -> None:
    board = Board(3)
    board.write(2, ROW)
    assert [board.read(slot) for slot in (1, 2, 3)] == [EMPTY, ROW, EMPTY]
    board.clear(2)
    assert board.read(2) == EMPTY


def test_the_last_slot_has_room() -> None:
    board = Board(1000)
    board.write(1000, ROW)
    assert board.read(1000) == ROW


def test_the_supervisor_sees_what_a_forked_worker_writes() -> None:
    board = Board(1)
    in_a_child(lambda: board.write(1, ROW))
    assert board.read(1) == ROW


def test_a_worker_sees_the_servers_new_name() -> None:
    board = Board(1)
    board.server_id = "a-rather-long-host-name:1:aaaa"
    board.server_id = "ü:1:bbbb"
    assert board.server_id == "ü:1:bbbb"
    in_a_child(lambda: setattr(board, "server_id", "seen " + board.server_id))
    assert board.server_id == "seen ü:1:bbbb"


def test_the_longest_host_name_does_not_reach_into_the_rows() -> None:
    board = Board(1)
    board.write(1, ROW)
    board.server_id = "h" * 100 + ":4194304:abcdef01"
    assert board.read(1) == ROW


def test_a_name_that_has_no_room_is_refused() -> None:
    with pytest.raises((ValueError, IndexError)):
        Board(1).server_id = "h" * 513


def test_a_wake_up_is_taken_once() -> None:
    wake = Wake()
    assert not wake.take()
    wake.give()
    assert wake.take()
    assert not wake.take()


def test_many_wake_ups_while_nobody_waits_are_one() -> None:
    wake = Wake()
    for _ in range(5):
        wake.give()
    assert wake.take()
    assert not wake.take()


def test_a_wake_up_given_in_another_process_is_seen_by_whoever_waits() -> None:
    wake = Wake()
    in_a_child(wake.give)
    assert select.select([wake.descriptor], [], [], 5)[0]
    in_a_child(wake.take)
    assert not wake.take()
