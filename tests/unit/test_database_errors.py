"""The list of errors: which of them mean that the server is gone, and which that one statement failed."""

from __future__ import annotations

import psycopg
import pytest
from convertq.queue.database.errors import SchemaError, in_plain_words, server_is_gone
from convertq.queue.errors import Code, Failure

GONE = ("08006", "08P01", "25006", "28P01", "3D000", "53300", "53200", "57P01", "57P02", "57P03", "57P05")
FAILED = ("55P03", "57014", "40001", "40P01", "23505", "23514", "42501", "42P01", "22P02", "25P02", "26000", "P0001")


def error_of(sqlstate: str) -> psycopg.Error:
    try:
        return psycopg.errors.lookup(sqlstate)("said by the server")
    except KeyError:
        error = psycopg.DatabaseError("said by the server")
        error.sqlstate = sqlstate
        return error


@pytest.mark.parametrize("sqlstate", GONE)
def test_the_server_is_gone(sqlstate: str) -> None:
    assert server_is_gone(error_of(sqlstate))


@pytest.mark.parametrize("sqlstate", FAILED)
def test_a_statement_failed(sqlstate: str) -> None:
    assert not server_is_gone(error_of(sqlstate))


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (psycopg.OperationalError("no answer from the database for 12 s"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.DataError("timestamp too large"), False),
        (SchemaError("run `convertq migrate`"), True),
        (Failure(Code.IO_ERROR, "the disk is full"), False),
    ],
)
def test_an_error_without_a_code_of_the_server(error: Exception, is_gone: bool) -> None:
    assert server_is_gone(error) is is_gone


def test_an_error_in_plain_words_is_one_line() -> None:
    assert in_plain_words(psycopg.OperationalError("first line\nSecond line")) == "first line; Second line"
