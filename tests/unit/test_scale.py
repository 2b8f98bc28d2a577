"""How many workers are wanted: for what runs, and for what waits, within the target."""

from __future__ import annotations

from typing import Any

import pytest
from convertq.queue.scale import GatewayLoad, choose_wanted_workers

NOTHING = GatewayLoad("default", "closed", False, None, 0, 0, None, False)


def load(**fields: Any) -> GatewayLoad:
    return GatewayLoad(**{**vars(NOTHING), **fields})


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [
        ([NOTHING], 0),
        ([load(queued=1, seconds=0.0)], 1),
        ([load(queued=1, seconds=0.01)], 1),
        ([load(queued=60, seconds=1.0)], 1),
        ([load(queued=61, seconds=1.0)], 2),
        ([load(queued=600)], 10),  # not measured: a second each
        ([load(running=3)], 3),
        ([load(running=3, queued=120, seconds=0.5)], 4),
        ([load(queued=600, seconds=6.0, max_calls=8)], 8),
        ([load(running=9, queued=600, seconds=6.0, max_calls=8)], 9),  # the limit was lowered
        ([load(queued=20, seconds=1.0), load(gateway="ocr", queued=2, seconds=12.0)], 1),
        ([load(queued=3, seconds=2.0), load(gateway="ocr", queued=18, seconds=3.0)], 1),
        ([load(queued=600, seconds=6.0, max_calls=8), load(gateway="ocr", queued=120, seconds=1.0)], 10),
        ([load(queued=600, breaker="open")], 1),
        ([load(queued=600, is_paused=True)], 1),
        ([load(has_paused_jobs=True)], 1),
        ([load(running=2, queued=600, breaker="open")], 2),
        ([load(queued=600, breaker="half_open"), load(gateway="ocr", queued=120, seconds=1.0)], 2),
    ],
)
def test_the_number_of_wanted_workers(loads: list[GatewayLoad], wanted: int) -> None:
    assert choose_wanted_workers(loads, 60)[0] == wanted


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ([NOTHING], "nothing to do"),
        ([load(running=3, queued=120, seconds=0.5)], "3 running, and 1 to finish 120 queued within 60 s"),
        (
            [load(queued=600, seconds=6.0, max_calls=8)],
            "0 running, and 8 to finish 600 queued within 60 s; max_calls limits gateway default",
        ),
        (
            [load(queued=5, breaker="half_open"), load(gateway="ocr", queued=1, is_paused=True)],
            "every queued job is held: the breaker of gateway default is half-open, gateway ocr is paused",
        ),
        ([load(has_paused_jobs=True)], "every queued job is held: their owners are paused"),
    ],
)
def test_the_reason_is_in_words(loads: list[GatewayLoad], reason: str) -> None:
    assert choose_wanted_workers(loads, 60)[1] == reason
