"""The error codes: which are tried again, which count against the gateway, what people read."""

from __future__ import annotations

import errno

import pytest
from convertq.queue.errors import Code, Failure, io_failure, one_line
from hypothesis import given
from hypothesis import strategies as st

PUBLIC = "NOT_PDF TOO_LARGE GW_4XX GW_5XX GW_TIMEOUT IO_ERROR NOT_READY EXPIRED FORBIDDEN UNKNOWN"


def test_the_public_codes_are_these_and_no_others() -> None:
    assert [str(code) for code in Code] == PUBLIC.split()


@pytest.mark.parametrize("code", Code)
def test_only_what_may_pass_by_itself_is_tried_again(code: Code) -> None:
    assert Failure(code, "x").retryable is (code in {"GW_5XX", "GW_TIMEOUT", "IO_ERROR", "UNKNOWN"})


@pytest.mark.parametrize("code", Code)
def test_only_5xx_and_timeouts_of_a_call_count_against_the_gateway(code: Code) -> None:
    assert Failure(code, "x", called=True).gateway_ok is (code not in {"GW_5XX", "GW_TIMEOUT"})
    assert Failure(code, "x", called=False).gateway_ok is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_tried_again(number: int) -> None:
    failure = io_failure("the result cannot be written", OSError(number, "No space"))
    assert (failure.code, failure.retryable) == (Code.IO_ERROR, False)
    assert failure.message == "the result cannot be written: the disk is full"


def test_another_disk_error_is_tried_again_and_names_no_path() -> None:
    failure = io_failure("the source file cannot be read", OSError(errno.EACCES, "Permission denied", "/srv/a/b.pdf"))
    assert failure.retryable
    assert failure.message == "the source file cannot be read: permission denied"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\r\n\tand a\ttab\n", "two lines and a tab"),
        ("failed: Connection refused\n\tIs it running?\n", "failed: Connection refused; Is it running?"),
        ("closed\n\tThis means it died\n\tbefore the request.\n", "closed; This means it died before the request."),
        ("All failures were:\n- this.\n\n- that", "All failures were: - this. - that"),
        ("Nothing\n \0 \nBetween", "Nothing; Between"),
        ("cannot open /srv/app/x.pdf\nIt is gone", "cannot open …; It is gone"),
        ("cannot open /srv/up loads/x.pdf", "cannot open … loads/x.pdf"),
        ("cannot open '/srv/app/x.pdf': denied", "cannot open '…': denied"),
        ("open:/srv/app/x.pdf", "open:…"),
        ("cannot open /secret", "cannot open …"),
        ("http://user:pass@host/x is down", "http://host/x is down"),
        ("http://user:p@ss@host/x is down", "http://host/x is down"),
        ("3/4 of application/xml and 1/2", "3/4 of application/xml and 1/2"),
        ("nul \0 and escape \x1b[31m", "nul and escape [31m"),
    ],
)
def test_a_message_shows_neither_control_characters_nor_paths_nor_credentials(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(max_size=600))
def test_a_message_is_one_printable_line_of_at_most_200(text: str) -> None:
    shown = one_line(text)
    assert len(shown) <= 200
    assert shown.isprintable()
    assert one_line(shown) == shown
