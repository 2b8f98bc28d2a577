"""Where a request reads: on the replica, or on the primary if the visitor's last write has not arrived there yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from convertq.queue.database.database import Database
from convertq.queue.wal_position import NEVER, format_position, parse_position, read_position
from convertq.web.context import web
from convertq.web.http_error import DatabaseDown
from convertq.web.replica import ReplicaLost
from flask import Flask, Response, g, request

COOKIE = "convertq_written"
#: After this time the visitor reads from the replica again, whatever it has replayed.
MAX_AGE_SECONDS = 60
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class ReplicaAwareFlask(Flask):
    """Repeats a request on the primary when the replica is lost in the middle of it. Only reads use the replica."""

    def dispatch_request(self) -> Any:
        try:
            return super().dispatch_request()
        except ReplicaLost:
            g.reads_primary = True
            return super().dispatch_request()


def reads_replica() -> bool:
    """False for a request that changes something, which reads what it has written."""
    replica = web().replica
    if replica is None or g.get("reads_primary") or _writes():
        return False
    return replica.may_serve(parse_position(request.cookies.get(COOKIE)) or 0)


@contextmanager
def reading() -> Iterator[Database]:
    """For statements that only read and may be a few seconds behind. Raises DatabaseDown or ReplicaLost."""
    replica = web().replica
    place = replica if replica is not None and reads_replica() else web().connections
    with place.reading() as database:
        yield database


def mark_written() -> None:
    """Called by a request that writes although its method is that of a read."""
    g.has_written = True


def set_written_cookie(response: Response) -> Response:
    """After a write: the visitor's reads go to the primary until the replica has replayed this position."""
    if web().replica is not None and _writes():
        response.set_cookie(
            COOKIE, format_position(_current_position()), max_age=MAX_AGE_SECONDS, httponly=True, samesite="Lax",
            secure=request.is_secure, path="/",
        )  # fmt: skip
    return response


def _writes() -> bool:
    return bool(g.get("has_written")) or request.method not in SAFE_METHODS


def _current_position() -> int:
    """Later than the commit of this request."""
    try:
        with web().connections.session() as database:
            position, _ = read_position(database)
    except DatabaseDown:
        position = None
    return NEVER if position is None else position
