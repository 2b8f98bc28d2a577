"""What the tests of `convertq doctor` share: one check at a time, or the whole command, and what it found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from convertq.queue.doctor.examination import Check, run_checks
from convertq.queue.doctor.finding import CheckContext, Finding, State

from tests.processes import run as run_convertq

MakeContext = Callable[..., CheckContext]
OK, WARN, BAD = State.OK, State.WARN, State.BAD


def find(check: Check, context: CheckContext, *, fix: bool = False) -> list[Finding]:
    return list(run_checks((check,), context, fix=fix))


def state_of(check: Check, context: CheckContext) -> State:
    [finding] = find(check, context)
    assert finding.state is OK or finding.remedy
    return finding.state


def doctor(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the last finding of each check."""
    done = run_convertq("doctor", "--json", *arguments, environment=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
