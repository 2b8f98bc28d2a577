"""A migration's first lines: which code it supports, and whether it needs a transaction."""

from __future__ import annotations

import re

import pytest
from convertq import sql
from convertq.sql import Migration


def test_without_a_word_only_code_that_knows_it_is_supported() -> None:
    migration = Migration(7, "x", "-- Some words.\nSELECT 1;\n-- supports code from: 3\n")
    assert (migration.supports_code_from, migration.runs_outside) == (7, False)


def test_the_first_lines_declare_what_is_different() -> None:
    text = (
        "-- Some words.\n--\n-- supports code from: 5\n-- outside a transaction\n\nSELECT 1;\n-- more\nSELECT\n  2;\n"
    )
    migration = Migration(7, "x", text)
    assert (migration.supports_code_from, migration.runs_outside) == (5, True)
    assert migration.statements == ["SELECT 1", "SELECT\n  2"]


@pytest.mark.parametrize("declared", ["", "0", "8", "six", "-1"])
def test_a_declaration_that_makes_no_sense_is_refused(declared: str) -> None:
    with pytest.raises(ValueError, match="migration 7 must support code from 1 to 7"):
        _ = Migration(7, "x", f"-- supports code from: {declared}\nSELECT 1;").supports_code_from


def test_what_is_built_concurrently_may_be_built_again() -> None:
    for migration in sql.migrations():
        assert migration.supports_code_from <= migration.version
        repeatable = re.findall(r"CONCURRENTLY IF (?:NOT )?EXISTS", migration.text)
        assert migration.text.count("CONCURRENTLY") == len(repeatable)
