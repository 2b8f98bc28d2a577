"""A commit whose answer is lost: it is looked up on a new connection, and made again if it did not take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psycopg
from convertq.queue.database.database import Database
from psycopg.pq import TransactionStatus

Result = TypeVar("Result")


def commit(database: Database, work: Callable[[], Result], took_effect: Callable[[Result], bool]) -> Result:
    """Runs `work` in a transaction of its own, and again on a new connection if the connection is lost before COMMIT.

    If it is lost during COMMIT, `took_effect` looks for what `work` had done: the server may have died before it or
    after it, and the new primary may have it or not. Within a transaction of the caller, that one decides.
    """
    while True:
        is_outermost = database.connection.info.transaction_status == TransactionStatus.IDLE
        done: list[Result] = []
        try:
            with database.transaction():
                done.append(work())
            return done[0]
        except psycopg.Error as error:
            if not is_outermost or not database.reconnect_after(error):
                raise
        if done and took_effect(done[0]):
            return done[0]
