"""show's timeline: it fits the terminal, however short or long what stands in it is."""

from __future__ import annotations

import pytest
from convertq.cli.show import TIMELINE, hanging
from convertq.cli.table import columns, table


@pytest.mark.parametrize("after", ["", "+3ms", "+12ms", "+2h05m"])
@pytest.mark.parametrize("details", ["m" * 190, "worker host:1:ab/1, " * 12, "発票" * 60])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(after: str, details: str) -> None:
    rows = list(hanging([("17:46:55", after, "failed", details)], 80))
    lines = table(TIMELINE, rows)
    assert max(map(columns, lines)) <= 80
    assert "".join(row[3] for row in rows).replace(" ", "") == details.replace(" ", "")


def test_in_a_pipe_the_details_stay_on_their_line() -> None:
    assert list(hanging([("", "", "", "m" * 500)], None)) == [("", "", "", "m" * 500)]
