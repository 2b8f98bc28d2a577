"""The colours of the pages: what is to be read can be read, in light and dark (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CSS = (Path(__file__).parents[2] / "web" / "static" / "base.css").read_text()
TEXT, SHAPE = 4.5, 3.0  # least contrast of words, and of what tells one part from another
#: words, and what they are written on
WORDS = [
    *[(word, ground) for word in ("text", "muted") for ground in ("page", "surface", "sunken")],
    *[(tone, ground) for tone in ("good", "warn", "bad", "accent") for ground in ("surface", f"{tone}-soft")],
    *[("text", f"{tone}-soft") for tone in ("good", "warn", "bad", "accent")],
    ("text", "raised"),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("bad", "page"),
    ("warn-soft", "warn"),  # the pill of an open breaker
    ("page", "text"),  # the toast
]
SHAPES = [*[(f"series-{number}", "surface") for number in range(1, 6)], ("line-strong", "surface"), ("accent", "page")]


def schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", CSS, re.DOTALL)
    read = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in (light, dark)]
    return {"light": read[0], "dark": {**read[0], **read[1]}}


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((brightness(one), brightness(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_shapes_have_enough_contrast(scheme: str) -> None:
    colours = schemes()[scheme]
    pairs = [(*pair, TEXT) for pair in WORDS] + [(*pair, SHAPE) for pair in SHAPES]
    assert [
        (front, ground) for front, ground, least in pairs if contrast(colours[front], colours[ground]) < least
    ] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chosen_tab_is_not_the_colour_of_the_others(scheme: str) -> None:
    colours = schemes()[scheme]
    assert brightness(colours["raised"]) > brightness(colours["sunken"])
