"""The XML of the reference gateway is well-formed whatever a document holds."""

from __future__ import annotations

import pytest
from convertq.gateway.answer import Refusal
from convertq.gateway.xml_text import without_illegal, xml_pieces
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree


def parsed(document: dict[str, object], pretty: bool = False) -> etree._Element:
    text = "".join(xml_pieces(document, pretty))
    return etree.fromstring(text.encode("utf-8"))


@given(
    st.text(
        st.characters(exclude_categories=()) | st.sampled_from("\x00\x08\x1f\x7f\ufffe\uffff\ud800\udfff<>&]\r\n\"'")
    )
)
def test_any_text_comes_back_without_the_characters_that_xml_cannot_hold(text: str) -> None:
    assert (parsed({"a": text}).text or "") == without_illegal(text)


def test_lists_repeat_their_element_and_empty_things_are_empty_elements() -> None:
    root = parsed({"a": {"b": ["1", None, "2"], "c": {"d": []}, "e": True}}, pretty=True)
    assert [(child.tag, child.text) for child in root] == [
        ("b", "1"), ("b", None), ("b", "2"), ("c", None), ("e", "true"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "1a", "a b", "a>", "a:b", "-", "ä", "a\n"])
def test_a_key_that_is_no_element_name_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="cannot be the name"):
        parsed({"a": {name: "1"}})


def test_a_list_in_a_list_is_refused() -> None:
    with pytest.raises(Refusal, match="list inside a list"):
        parsed({"a": {"b": [["1"]]}})


def test_a_bottomless_document_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(200):
        deep = {"a": deep, "b": "1"}
    with pytest.raises(Refusal, match="levels"):
        parsed({"a": deep})
