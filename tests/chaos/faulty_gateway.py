"""The gateways of the storm, which are one server: mostly right, sometimes slow, wrong or silent, and never fond of
poison. It counts the calls that each of them has at a time."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

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
SIDE = "side"  # good, by another gateway
ADAPTIVE = "adaptive"  # good, by a gateway whose limit adapts
#: By name: its mappings, and how many calls it may have at a time. Together they have fewer than there are workers.
GATEWAYS: dict[str, tuple[tuple[str, ...], int | str]] = {
    "main": ((GOOD, POISON), 4),
    "side": ((SIDE, CURABLE), 2),
    "auto": ((ADAPTIVE,), "auto"),
}
MAPPINGS = tuple(mapping for mappings, _ in GATEWAYS.values() for mapping in mappings)
GATEWAY_OF = {mapping: name for name, (mappings, _) in GATEWAYS.items() for mapping in mappings}
LIMITS = {name: limit for name, (_, limit) in GATEWAYS.items() if isinstance(limit, int)}

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


@dataclass(frozen=True)
class Call:
    job: str
    began: float


@dataclass(frozen=True)
class Excess:
    """More calls at a time than a gateway may have."""

    at: float
    gateway: str
    calls: tuple[Call, ...]


class CallsUnderWay:
    """A call has ended when it is answered, or when its client has closed the connection, noticed by then or not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: defaultdict[str, dict[Call, socket.socket]] = defaultdict(dict)
        self.most: Counter[str] = Counter()
        self.excesses: list[Excess] = []

    def begin(self, gateway: str, exchange: Exchange) -> Call:
        call = Call(exchange.correlation_id, time.time())
        with self._lock:
            under_way = {one: its for one, its in self._open[gateway].items() if not is_closed(its)}
            under_way[call] = exchange.handler.connection
            self._open[gateway] = under_way
            self.most[gateway] = max(self.most[gateway], len(under_way))
            if len(under_way) > LIMITS.get(gateway, len(under_way)):
                self.excesses.append(Excess(time.time(), gateway, tuple(under_way)))
        return call

    def end(self, gateway: str, call: Call) -> None:
        with self._lock:
            self._open[gateway].pop(call, None)


def is_closed(connection: socket.socket) -> bool:
    """By its client."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class FaultyGateway(StandInGateway):
    """`calm` makes it answer at once and rightly, poison apart."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.calm = False
        self.calls = CallsUnderWay()
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
        gateway = GATEWAY_OF.get(mapping, "")
        call = self.calls.begin(gateway, exchange)
        try:
            behaviour.act(exchange)
        finally:
            self.calls.end(gateway, call)

    def gateways_file(self) -> str:
        """As GATEWAYS_FILE describes them."""
        return "".join(
            f'[gateways.{name}]\nurl = "{self.url}"\nmappings = {list(mappings)}\nmax_calls = {limit!r}\n'
            for name, (mappings, limit) in GATEWAYS.items()
        )

    def _draw(self) -> Behaviour:
        """A good answer takes up to a second, or two, or long enough for the lease to need extending."""
        weights, bad = zip(*FAULTS, strict=True)
        choice: Behaviour | None = self._dice.choices([None, *bad], [GOOD_ANSWERS, *weights])[0]
        if choice is not None:
            return choice
        slow = self._dice.choices([1.0, 2.0, 6.0], [88, 10, 2])[0]
        return delayed(self._dice.uniform(slow / 10, slow))
