"""Sizes and counts as text, the same on a terminal and on the pages."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """`512 B`, `1.2 MB`; decimal, as disks and uploads are measured."""
    number, unit = float(count), 0
    while number >= 999.5 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.0f} {UNITS[unit]}" if unit == 0 or number >= 99.5 else f"{number:.1f} {UNITS[unit]}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
