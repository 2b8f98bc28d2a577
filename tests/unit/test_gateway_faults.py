"""When a fault strikes."""

from __future__ import annotations

import pytest
from convertq.gateway.faults import Fault, Faults, parse_rule


def kinds(faults: Faults, correlation_id: str = "", sha256: str = "00", extra: str = "") -> list[str]:
    return [fault.kind for fault in faults.for_request(correlation_id, sha256, extra)]


def test_first_is_counted_for_each_correlation_id() -> None:
    faults = Faults(["fail:502@first=2"])
    assert [kinds(faults, "a") for _ in range(3)] == [["fail"], ["fail"], []]
    assert kinds(faults, "b") == ["fail"]


def test_a_rule_for_one_document_spares_the_others_and_does_not_count_them() -> None:
    faults = Faults(["fail@sha256=AB@first=1"])
    assert kinds(faults, "job", "cd12") == []
    assert kinds(faults, "job", "ab12") == ["fail"]
    assert kinds(faults, "job", "ab12") == []


def test_delays_add_up_and_the_first_other_kind_wins() -> None:
    faults = Faults(["truncate", "delay:1", "reset", "delay:2"])
    assert kinds(faults) == ["delay", "delay", "truncate"]


def test_a_share_strikes_never_or_always_at_its_ends() -> None:
    assert kinds(Faults(["reset@share=0"])) == []
    assert kinds(Faults(["reset@share=1"])) == ["reset"]


def test_a_fault_asked_for_by_the_request_strikes_it_alone() -> None:
    faults = Faults()
    assert kinds(faults, extra="drip:9") == ["drip"]
    assert kinds(faults) == []


def test_arguments_have_their_defaults() -> None:
    assert parse_rule("fail").fault == Fault("fail", 500)
    assert parse_rule("drip").fault == Fault("drip", 1)


@pytest.mark.parametrize(
    "text",
    ["", "explode", "fail:200", "fail:x", "fail:404.5", "delay", "delay:-1", "delay:nan", "drip:0", "reset:1",
     "fail@first=x", "fail@first", "fail@sha256=", "fail@sometimes=1"],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused_with_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="fault") as refused:
        parse_rule(text)
    assert "\n" not in str(refused.value)
