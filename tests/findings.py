"""Owns what the tests of `convertq doctor` share: one check at a time, or the whole command, and what it found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from convertq.worker.checks.finding import Finding, Look, State
from convertq.worker.doctor import Check, carry_out

from tests.processes import run as run_convertq

LookAt = Callable[..., Look]
OK, WARN, BAD = State.OK, State.WARN, State.BAD


def find(check: Check, look: Look, *, fix: bool = False) -> list[Finding]:
    return list(carry_out((check,), look, fix=fix))


def state_of(check: Check, look: Look) -> State:
    [finding] = find(check, look)
    assert finding.state is OK or finding.remedy
    return finding.state


def doctor(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the last finding of each check."""
    done = run_convertq("doctor", "--json", *arguments, environment=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
