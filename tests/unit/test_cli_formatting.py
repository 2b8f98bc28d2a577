"""How things are written for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from convertq.cli.formatting import duration, shown, timestamp
from convertq.cli.table import columns, table
from convertq.queue.quantities import counted, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.85, "850ms"), (-3, "0ms"), (12.9, "12s"), (192, "3m12s"), (7500, "2h05m"), (356400, "4d03h")],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (512, "512 B"), (1500, "1.5 kB"), (52428800, "52.4 MB"), (999_999, "1.0 MB")]
)
def test_a_size_is_decimal(count: int, text: str) -> None:
    assert size(count) == text


def test_a_name_cannot_reach_the_terminal_with_control_characters() -> None:
    assert shown("a\nb\x1b[31m\u202e\udcff.pdf") == "a\\nb\\x1b[31m\\u202e\\udcff.pdf"
    assert shown("fatura «ação».pdf") == "fatura «ação».pdf"


def test_a_moment_of_another_day_shows_its_date() -> None:
    now = datetime(2026, 5, 2, 12, tzinfo=UTC)
    assert len(timestamp(now, now)) == len("12:00:00")
    assert timestamp(now - timedelta(days=3), now).startswith("2026-04-29 ")


def test_one_thing_is_singular() -> None:
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


def test_a_table_in_a_pipe_is_whole() -> None:
    assert table(("A", "FILE"), [("1", "x" * 300)], elastic=("FILE",))[1] == "1  " + "x" * 300


@pytest.mark.parametrize("width", [10, 20, 33])
def test_a_table_on_a_terminal_never_wraps(width: int) -> None:
    rows = [("1234567890", "x" * 50, "漢字" * 20), ("1", "e\u0301" * 30, "short")]
    lines = table(("ID", "FILE", "ERROR"), rows, elastic=("FILE", "ERROR"), width=width)
    assert all(columns(line) <= width for line in lines)


def test_columns_stay_aligned_beside_wide_characters() -> None:
    lines = table(("FILE", "N"), [("漢字", "1"), ("abcdef", "2")])
    assert [columns(line[: line.index(cell)]) for line, cell in zip(lines, "N12", strict=True)] == [8, 8, 8]
