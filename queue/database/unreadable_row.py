"""The error of a statement whose rows hold a value that Python cannot read."""

from __future__ import annotations

import psycopg


class UnreadableRow(psycopg.DataError):
    """The statement was executed, and in autocommit mode it is committed; its rows arrived and cannot be loaded."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error) or type(error).__name__)
