"""What a client gets for its Accept header."""

from __future__ import annotations

import pytest
from convertq.gateway.accept import JSON, XML, output_for
from convertq.gateway.answer import Refusal


@pytest.mark.parametrize(
    ("accept", "output"),
    [
        (None, XML),
        ("*/*", XML),
        ("application/xml", XML),
        ("text/xml", XML),
        ("application/json", JSON),
        ("Application/JSON; charset=utf-8", JSON),
        ("application/xml;q=0.5, application/json", JSON),
        ("text/html, application/xml;q=0.9, */*;q=0.8", XML),
        ("application/xml;q=0, */*", JSON),
    ],
)
def test_the_best_liked_offer_is_chosen(accept: str | None, output: str) -> None:
    assert output_for(accept, (XML, JSON)) == output


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/xml;q=0", "application/xml;q=x", "nonsense"])
def test_a_client_that_wants_nothing_on_offer_is_refused(accept: str) -> None:
    with pytest.raises(Refusal) as refused:
        output_for(accept, (XML, JSON))
    assert refused.value.status == 406
