"""Small graphs from samples, and what to draw with: block characters, or ASCII where the terminal knows no others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from convertq.cli.table import columns

MAX_SAMPLES = 180  # in a graph: three minutes at one a second
RAMP = "▁▂▃▄▅▆▇█"
ASCII = str.maketrans({**dict(zip(RAMP, "_.-:=+*#", strict=True)), "…": "~", "─": "-", "·": "-", "↑": "^", "↓": "v"})
#: What Python sets LC_CTYPE to when the locale is C (PEP 538), although the terminal may not know UTF-8.
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
PLAIN_LOCALES = ("", "C", "POSIX")


class History:
    """The last samples of one number."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        self._taken = 0

    def add(self, value: float) -> None:
        self._samples.append((self._taken, value))
        self._taken += 1

    @property
    def peak(self) -> float:
        return max((value for _, value in self._samples), default=0)

    def graph(self, room: int) -> str:
        """At most `room` characters, each the highest of its samples.

        Groups begin at fixed samples, not at the oldest that is kept: otherwise the graph would change with each one.
        """
        if room < 2:
            return ""
        together = math.ceil(len(self._samples) / (room - 1))  # a group that has lost its oldest samples takes one more
        groups: dict[int, float] = {}
        for number, value in self._samples:
            groups[number // together] = max(groups.get(number // together, 0), value)
        return sparkline(list(groups.values()))


def sparkline(values: list[float]) -> str:
    """Zero is the lowest step; anything above zero is higher, however tall the peak is."""
    top = max(values, default=0)
    return "".join(RAMP[math.ceil(value / top * (len(RAMP) - 1)) if value > 0 else 0] for value in values)


def knows_unicode(encoding: str | None, environment: Mapping[str, str]) -> bool:
    """Whether the terminal probably shows UTF-8: Python itself writes it even where the locale is C."""
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
    """The text keeps its width, so that columns stay aligned."""
    drawn = text.translate(ASCII)
    return drawn if drawn.isascii() else "".join(char if char.isascii() else "?" * columns(char) for char in drawn)
