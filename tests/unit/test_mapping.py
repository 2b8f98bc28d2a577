"""The command, the API and the pages choose the same mapping."""

from __future__ import annotations

from pathlib import Path

import pytest
from convertq.queue.config import read_config
from convertq.queue.mapping import MappingNotAllowed, choose_mapping

ROOT = Path(__file__).parents[2]
CONFIG = read_config({"DATABASE_URL": "postgresql://host/db", "MAPPINGS_ALLOWED": "text_v1,pt_simon_invoice_v1"})


def test_the_default_of_the_table_is_the_default_of_a_submission() -> None:
    assert choose_mapping(CONFIG) == choose_mapping(CONFIG, "") == "pt_simon_invoice_v1"


def test_where_that_is_not_allowed_the_first_allowed_mapping_is_the_default() -> None:
    config = read_config({"DATABASE_URL": "postgresql://host/db", "MAPPINGS_ALLOWED": "text_v1,other_v1"})
    assert choose_mapping(config) == choose_mapping(config, "") == "text_v1"


def test_a_mapping_that_is_named_must_be_allowed() -> None:
    assert choose_mapping(CONFIG, "pt_simon_invoice_v1") == "pt_simon_invoice_v1"
    with pytest.raises(MappingNotAllowed, match="text_v1, pt_simon_invoice_v1"):
        choose_mapping(CONFIG, "other")


def test_only_the_domain_chooses() -> None:
    chosen = [path for room in ("cli", "web") for path in (ROOT / room).rglob("*.py")]
    assert [path.name for path in chosen if "mappings_allowed[0]" in path.read_text()] == []
