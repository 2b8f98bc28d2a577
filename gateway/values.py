"""Types of mapped values: how a text found in a document becomes a date or a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation

MONTHS = (
    *("janeiro", "fevereiro", "março", "abril", "maio", "junho"),
    *("julho", "agosto", "setembro", "outubro", "novembro", "dezembro"),
)
YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
DAY_FIRST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
SPELLED = re.compile(r"(\d{1,2}) de (\w+) de (\d{4})", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(?:[ .\u00a0\u202f]\d{3})*(?:,\d+)?|-?\d+\.\d{1,2}")
UNITS = re.compile(r"€|EUR|%|\bun\b\.?", re.IGNORECASE)


def as_text(found: str) -> str | None:
    return " ".join(found.split()) or None


def as_date(found: str) -> str | None:
    """ISO 8601; a day comes before its month, as it is written in Portugal."""
    if match := YEAR_FIRST.fullmatch(found):
        year, month, day = map(int, match.groups())
    elif match := DAY_FIRST.fullmatch(found):
        day, month, year = map(int, match.groups())
    elif (match := SPELLED.fullmatch(found)) and match[2].lower() in MONTHS:
        day, month, year = int(match[1]), MONTHS.index(match[2].lower()) + 1, int(match[3])
    else:
        return None
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def decimal_of(found: str) -> Decimal | None:
    """A comma is the decimal sign; dots and spaces group thousands, but `12.50` is twelve and a half."""
    text = UNITS.sub("", found).strip()
    if not NUMBER.fullmatch(text):
        return None
    if re.fullmatch(r"-?\d+\.\d{1,2}", text):
        return Decimal(text)
    try:
        return Decimal(re.sub(r"[ .\u00a0\u202f]", "", text).replace(",", "."))
    except InvalidOperation:
        return None


def as_number(found: str) -> str | None:
    """A quantity or a rate, without trailing zeros."""
    number = decimal_of(found)
    if number is None:
        return None
    return f"{number.normalize():f}" if number else "0"


def as_amount(found: str) -> str | None:
    """Money, with the decimals that were written and two at least."""
    number = decimal_of(found)
    if number is None:
        return None
    return f"{number:f}" if -int(number.as_tuple().exponent) >= 2 else f"{number:.2f}"


TYPES: dict[str, Callable[[str], str | None]] = {
    "text": as_text,
    "date": as_date,
    "number": as_number,
    "amount": as_amount,
}
