"""Small graphs from samples, and what to draw with: block characters, or ASCII where the terminal knows no others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from convertq.cli.table import columns

WINDOW = 180  # samples in a graph: three minutes at one a second
RAMP = "▁▂▃▄▅▆▇█"
ASCII = str.maketrans({**dict(zip(RAMP, "_.-:=+*#", strict=True)), "…": "~", "─": "-", "·": "-", "↑": "^", "↓": "v"})
#: what Python sets LC_CTYPE to when the locale is C (PEP 538); the terminal has not learnt UTF-8 by that
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
PLAIN_LOCALES = ("", "C", "POSIX")


class History:
    """The last samples of one number."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._taken = 0

    def add(self, value: float) -> None:
        self._samples.append((self._taken, value))
        self._taken += 1

    @property
    def peak(self) -> float:
        return max((value for _, value in self._samples), default=0)

    def graph(self, room: int) -> str:
        """At most `room` characters, each the highest of its samples.

        Groups begin at fixed samples, not at the oldest that is left, or the graph would dance.
        """
        if room < 2:
            return ""
        together = math.ceil(len(self._samples) / (room - 1))  # a group of which only a part is left takes one more
        groups: dict[int, float] = {}
        for number, value in self._samples:
            groups[number // together] = max(groups.get(number // together, 0), value)
        return sparkline(list(groups.values()))


def sparkline(values: list[float]) -> str:
    """Zero is the lowest; anything more than that is higher, however tall the peak."""
    top = max(values, default=0)
    return "".join(RAMP[math.ceil(value / top * (len(RAMP) - 1)) if value > 0 else 0] for value in values)


def knows_unicode(encoding: str | None, environment: Mapping[str, str]) -> bool:
    """Whether the terminal can be expected to: Python itself writes UTF-8 even where the locale is C."""
    if "utf" not in (encoding or "").lower():
        return False
    if environment.get("PYTHONUTF8") == "1" or environment.get("PYTHONIOENCODING"):
        return True
    if everything := environment.get("LC_ALL"):
        return everything not in PLAIN_LOCALES
    kind, language = environment.get("LC_CTYPE", ""), environment.get("LANG", "")
    if kind in COERCED:
        kind = language
    return (kind or language) not in PLAIN_LOCALES


def in_ascii(text: str) -> str:
    """As wide as it was, so that columns stay aligned."""
    drawn = text.translate(ASCII)
    return drawn if drawn.isascii() else "".join(char if char.isascii() else "?" * columns(char) for char in drawn)
