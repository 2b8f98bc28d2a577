"""The fairness between uploads that arrive at full speed and everything else that a web process waits for."""

from __future__ import annotations

import os

import gevent
from convertq.web.request_limits import take_turn
from gevent.socket import wait_read

UPLOADS, PIECES = 50, 12  # at most, between a byte that arrives and the look at it


def test_sockets_are_looked_at_after_a_few_pieces_of_uploads() -> None:
    """Otherwise an answer of the database waits for a piece of every upload, at each of its round trips."""
    readable, writable = os.pipe()
    taken = 0
    seen_at: list[int] = []

    def upload() -> None:
        nonlocal taken
        while not seen_at:
            take_turn()
            taken += 1

    def wait_for_the_database() -> None:
        wait_read(readable)
        seen_at.append(taken)

    running = [gevent.spawn(wait_for_the_database), *(gevent.spawn(upload) for _ in range(UPLOADS))]
    with gevent.Timeout(10, TimeoutError()):
        while taken < UPLOADS:
            gevent.sleep(0.001)
        written_at = taken
        os.write(writable, b"x")
        gevent.joinall(running)
    os.close(readable)
    os.close(writable)
    assert seen_at[0] - written_at <= PIECES
