"""top's graphs: what they show, how wide they are, and what a terminal without Unicode gets."""

from __future__ import annotations

import pytest
from convertq.cli.table import columns
from convertq.cli.top.graph import MAX_SAMPLES, RAMP, History, in_ascii, knows_unicode, sparkline


def filled(*values: float) -> History:
    history = History()
    for value in values:
        history.add(value)
    return history


def test_the_peak_is_the_tallest_and_zero_the_lowest() -> None:
    assert sparkline([0, 7, 14]) == "▁▅█"


def test_one_job_beside_a_million_is_still_seen() -> None:
    assert sparkline([0, 1, 1_000_000]) == "▁▂█"


def test_nothing_is_drawn_flat() -> None:
    assert sparkline([0, 0, 0]) == RAMP[0] * 3
    assert sparkline([]) == ""


def test_each_sample_has_its_column_while_there_is_room() -> None:
    assert filled(1, 2, 4, 8).graph(20) == sparkline([1, 2, 4, 8])


@pytest.mark.parametrize("room", [-5, 0, 1, 2, 3, 10, 37, 150, 500])
def test_a_graph_is_never_wider_than_its_room(room: int) -> None:
    history = History()
    for number in range(3 * MAX_SAMPLES):
        history.add(number % 17)
        assert len(history.graph(room)) <= max(0, room)


def test_a_spike_is_not_lost_when_samples_share_a_column() -> None:
    history = filled(*[0] * 100, 50, *[0] * 79)
    assert history.graph(20).count("█") == 1


def test_the_past_stays_as_it_was_drawn() -> None:
    history = filled(*[number % 5 for number in range(MAX_SAMPLES)])
    before = history.graph(31)
    history.add(0)
    assert before[2:-2] in history.graph(31)


def test_only_the_last_samples_count() -> None:
    history = filled(1000, *[1] * MAX_SAMPLES)
    assert history.peak == 1


@pytest.mark.parametrize(
    ("encoding", "environment", "expected"),
    [
        ("utf-8", {"LANG": "en_US.UTF-8"}, True),
        ("utf-8", {"LANG": "C.UTF-8"}, True),
        ("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}, True),
        ("utf-8", {"LANG": "C", "PYTHONUTF8": "1"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),  # as Python itself sets it where LANG is C
        ("utf-8", {"LC_CTYPE": "C.UTF-8"}, False),
        ("utf-8", {"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ("utf-8", {"LANG": "POSIX"}, False),
        ("utf-8", {}, False),
        ("ascii", {"LANG": "en_US.UTF-8"}, False),
        ("iso8859-1", {"LANG": "de_DE"}, False),
        (None, {"LANG": "en_US.UTF-8"}, False),
    ],
)
def test_unicode_is_used_only_where_the_locale_names_it(
    encoding: str | None, environment: dict[str, str], expected: bool
) -> None:
    assert knows_unicode(encoding, environment) is expected


def test_ascii_keeps_the_shape_of_a_graph_and_the_width_of_a_name() -> None:
    assert in_ascii("▁▅█ ── größe 漢字…") == "_=# -- gr??e ????~"
    assert len(in_ascii("漢字.pdf")) == columns("漢字.pdf")
