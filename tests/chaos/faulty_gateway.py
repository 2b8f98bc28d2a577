"""The gateway of the storm: mostly right, sometimes slow, wrong or silent, and never fond of poison."""

from __future__ import annotations

import random
import threading
from collections import Counter

from tests.gateway_behaviours import (
    Behaviour,
    Exchange,
    delayed,
    empty,
    html,
    malformed,
    ok,
    reset_after_headers,
    reset_before_headers,
    silent,
    status,
    truncated,
    truncated_chunked,
)
from tests.stand_in_gateway import Request, StandInGateway

GOOD = "pt_simon_invoice_v1"
POISON = "poison"  # answered with 422 each time: must end as failed, GW_4XX
CURABLE = "curable"  # answered with 422 the first time: must be complete after a retry by hand
MAPPINGS = (GOOD, POISON, CURABLE)

#: how often, and what. A failure rate of a tenth is far from the breaker's half.
FAULTS: tuple[tuple[int, Behaviour], ...] = (
    (6, status(503)),
    (1, status(429, {"Retry-After": "1"})),
    (1, status(408)),
    (1, reset_before_headers()),
    (1, reset_after_headers()),
    (1, truncated()),
    (1, truncated_chunked()),
    (1, malformed()),
    (1, empty()),
    (1, html()),
    (1, silent()),
)
GOOD_ANSWERS = 140  # against the sum of the others


class FaultyGateway(StandInGateway):
    """`calm` makes it answer at once and rightly, poison apart."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.calm = False
        self.default = Behaviour("faulty", self._answer)
        self._dice = random.Random(seed)
        self._seen: Counter[str] = Counter()
        self._served = threading.local()  # the request of the thread that answers it

    def record(self, request: Request) -> None:
        self._served.request = request
        super().record(request)

    def _answer(self, exchange: Exchange) -> None:
        mapping = self._served.request.upload.fields.get("mapping", "")
        with self._recorded:
            self._seen[exchange.correlation_id] += 1
            first = self._seen[exchange.correlation_id] == 1
            behaviour = ok() if self.calm else self._draw()
        if mapping == POISON or (mapping == CURABLE and first):
            behaviour = status(422)
        behaviour.act(exchange)

    def _draw(self) -> Behaviour:
        """A good answer takes up to a second, or two, or long enough for the lease to need extending."""
        weights, bad = zip(*FAULTS, strict=True)
        choice: Behaviour | None = self._dice.choices([None, *bad], [GOOD_ANSWERS, *weights])[0]
        if choice is not None:
            return choice
        slow = self._dice.choices([1.0, 2.0, 6.0], [88, 10, 2])[0]
        return delayed(self._dice.uniform(slow / 10, slow))
