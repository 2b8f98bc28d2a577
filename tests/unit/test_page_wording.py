"""The pages have words for everything that can happen to a job, and words that can be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from convertq.queue.errors import Code
from convertq.queue.explain import State
from convertq.web import why
from convertq.web.wording import ERRORS, PAGE_STATES, STATES, age, errors_in_words, limit_in_words, span

WEB = Path(__file__).parents[2] / "web"
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
STEPS = ("reading", "converting", "writing")
#: text on what it stands on
PAIRS = [
    *product(("--text", "--muted"), ("--page", "--surface", "--sunken")),
    *product(("--text",), ("--accent-soft", "--good-soft", "--warn-soft", "--bad-soft")),
    *((f"--{tone}", f"--{tone}-soft") for tone in ("accent", "good", "warn", "bad")),
    *((f"--{tone}", "--surface") for tone in ("accent", "good", "warn", "bad")),
    ("--on-accent", "--accent"),
    ("--on-accent", "--accent-strong"),
    ("--warn-soft", "--warn"),
]
#: what has to be told from its ground, but is not read
SHAPES = [("--line-strong", "--surface"), *((f"--series-{number}", "--surface") for number in range(1, 6))]


def schemes() -> dict[str, dict[str, str]]:
    css = (WEB / "static" / "base.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", css, re.DOTALL)[:2]
    colours = re.compile(r"(--[\w-]+): (#[0-9a-f]{6});")
    return {
        "light": dict(colours.findall(light)),
        "dark": {**dict(colours.findall(light)), **dict(colours.findall(dark))},
    }


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_every_state_has_a_sentence_and_a_word() -> None:
    assert set(why.SENTENCES) == set(State)
    assert {PAGE_STATES.get(state, str(state)) for state in State} <= STATES.keys()


def test_every_public_code_has_what_happened_and_what_to_do() -> None:
    assert set(ERRORS) == set(Code)
    for words in errors_in_words(50 << 20).values():
        assert words["what"].endswith(".")
        assert words["advice"].endswith(".")
        assert "{" not in words["advice"]


def test_every_status_and_step_has_a_word_and_an_icon_that_exists() -> None:
    assert {"uploaded", "queued", "processing", "complete", "failed", *STEPS} <= set(STATES)
    icons = set(re.findall(r'id="i-(\w+)"', (WEB / "templates" / "icons.html").read_text()))
    assert {state["icon"] for state in STATES.values()} <= icons


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_by_people_who_see_less_well(scheme: str) -> None:
    colours = schemes()[scheme]
    weak = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_borders_and_curves_can_be_seen(scheme: str) -> None:
    colours = schemes()[scheme]
    weak = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in SHAPES}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 3} == {}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "under 1 s"),
        (1, "1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (7199, "1 h"),
        (86400, "1 day"),
        (200000, "2 days"),
    ],
)
def test_a_time_is_said_in_one_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(("seconds", "words"), [(-3, "just now"), (4, "just now"), (190, "3 min ago")])
def test_an_age_is_said_as_people_do(seconds: float, words: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == words


def test_the_limit_is_said_as_people_do() -> None:
    assert (limit_in_words(50 << 20), limit_in_words(1_500_000)) == ("50 MB", "1.5 MB")
