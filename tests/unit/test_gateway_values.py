"""How the reference gateway types what it finds."""

from __future__ import annotations

import pytest
from convertq.gateway.values import as_amount, as_date, as_number, as_text


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1.234,56 €", "1234.56"),
        ("€ 1 234,5", "1234.50"),
        ("12.50", "12.50"),
        ("1.234", "1234.00"),
        ("0,0385", "0.0385"),
        ("-7,00 EUR", "-7.00"),
        ("1\u202f000,00", "1000.00"),
    ],
)
def test_an_amount_is_read_with_its_comma_and_written_with_a_point(written: str, meant: str) -> None:
    assert as_amount(written) == meant


@pytest.mark.parametrize("written", ["", "abc", "1,2,3", "12/03/2024", "1.23.456,0", "NaN", "1e5"])
def test_what_is_not_an_amount_is_none(written: str) -> None:
    assert as_amount(written) is None


@pytest.mark.parametrize(("written", "meant"), [("23%", "23"), ("2,000", "2"), ("0,850", "0.85"), ("0", "0")])
def test_a_number_has_no_trailing_zeros(written: str, meant: str) -> None:
    assert as_number(written) == meant


@pytest.mark.parametrize(
    "written", ["05/03/2024", "5-3-2024", "05.03.2024", "2024-03-05", "2024/3/5", "5 de março de 2024"]
)
def test_a_date_becomes_iso_with_the_day_before_the_month(written: str) -> None:
    assert as_date(written) == "2024-03-05"


@pytest.mark.parametrize("written", ["31/02/2024", "2024", "5 de brumário de 2024", "00/00/0000"])
def test_what_is_not_a_date_is_none(written: str) -> None:
    assert as_date(written) is None


def test_text_is_kept_on_one_line() -> None:
    assert as_text(" a \n b ") == "a b"
