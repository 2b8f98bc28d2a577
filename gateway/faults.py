"""Faults on demand: the rules by which a request is made to go wrong."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

GRAMMAR = "KIND[:ARG][@first=N][@sha256=PREFIX][@share=0..1]"
DEFAULTS = {"fail": 500.0, "delay": None, "drip": 1.0, "truncate": 0.0, "reset": 0.0}
WITHOUT_ARGUMENT = ("truncate", "reset")
REMEMBERED = 10_000  # correlation ids for which @first is counted


@dataclass(frozen=True)
class Fault:
    kind: str
    argument: float


@dataclass
class FaultRule:
    """A fault with the conditions under which it strikes."""

    fault: Fault
    first: int | None = None
    sha256: str = ""
    share: float = 1.0
    seen: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def strikes(self, correlation_id: str, sha256: str) -> bool:
        if not sha256.startswith(self.sha256) or random.random() >= self.share:
            return False
        return self.first is None or self.count(correlation_id) <= self.first

    def count(self, correlation_id: str) -> int:
        self.seen[correlation_id] = self.seen.get(correlation_id, 0) + 1
        if len(self.seen) > REMEMBERED:
            self.seen.popitem(last=False)
        return self.seen[correlation_id]


class Faults:
    """All rules of a gateway. Delays add up; of the other kinds the first that strikes wins."""

    def __init__(self, rules: list[str] | tuple[str, ...] = ()) -> None:
        self.rules = [parse_rule(rule) for rule in rules]
        self.lock = threading.Lock()

    def for_request(self, correlation_id: str, sha256: str, extra: str = "") -> list[Fault]:
        rules = [*self.rules, *([parse_rule(extra)] if extra else [])]
        with self.lock:
            struck = [rule.fault for rule in rules if rule.strikes(correlation_id, sha256)]
        delays = [fault for fault in struck if fault.kind == "delay"]
        return delays + [fault for fault in struck if fault.kind != "delay"][:1]


def parse_rule(text: str) -> FaultRule:
    """Raises ValueError with one line that says what is wrong."""
    what, *conditions = text.strip().split("@")
    rule = FaultRule(parse_fault(what))
    for condition in conditions:
        name, _, value = condition.partition("=")
        match name:
            case "first":
                rule.first = int(number(condition, value))
            case "sha256" if value:
                rule.sha256 = value.lower()
            case "share":
                rule.share = number(condition, value)
            case _:
                raise ValueError(f"fault condition {condition!r} is not known; a fault is {GRAMMAR}")
    return rule


def parse_fault(text: str) -> Fault:
    kind, colon, argument = text.partition(":")
    if kind not in DEFAULTS or (colon and kind in WITHOUT_ARGUMENT):
        raise ValueError(f"fault {text!r} is not known; kinds are fail, delay, drip, truncate, reset")
    default = DEFAULTS[kind]
    if not colon and default is None:
        raise ValueError(f"fault {text!r} needs an argument, e.g. delay:2")
    value = number(text, argument) if colon else default or 0.0
    if kind == "fail" and value not in range(400, 600):
        raise ValueError(f"fault {text!r}: the status must be 400 to 599")
    if kind == "drip" and value < 1:
        raise ValueError(f"fault {text!r}: at least one byte per second")
    return Fault(kind, value)


def number(what: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ValueError(f"fault {what!r}: {text!r} is not a number that fits")
    return value
