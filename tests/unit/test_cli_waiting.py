"""The words beside the bar of `wait` and `submit --wait`: what the jobs do, and what holds them."""

from __future__ import annotations

from typing import Any

import pytest
from convertq.cli.waiting import what_they_do


def job(status: str, step: str | None = None) -> dict[str, Any]:
    return {"status": status, "step": step}


@pytest.mark.parametrize(
    ("jobs", "breaker", "said"),
    [
        ([job("complete"), job("failed")], "closed", "2 of 2"),
        ([job("processing", "converting"), job("processing", "converting")], "closed", "0 of 2: 2 converting"),
        ([job("processing"), job("queued"), job("complete")], "closed", "1 of 3: 1 processing, 1 queued"),
        ([job("queued")], "half_open", "0 of 1: 1 queued, breaker open"),
        ([job("processing", "writing")], "open", "0 of 1: 1 writing"),
        ([job("uploaded")], "closed", "0 of 1: 1 waiting for others"),
    ],
)
def test_what_the_jobs_do_is_said_in_a_few_words(jobs: list[dict[str, Any]], breaker: str, said: str) -> None:
    assert what_they_do(jobs, breaker) == said
