"""How soon idle workers behind PgBouncer begin, beside workers with direct connections.

The supervisor of the former listens at DATABASE_DIRECT_URL, so a new job wakes them without a poll.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.contender import Place
from bench.contenders import Convertq
from bench.gateway import Gateway
from bench.latency import measure_contenders
from bench.pgbouncer import pgbouncer
from bench.postgres import DurablePostgres
from bench.report import Row, ratio_at_most

SUBMISSIONS = int(os.environ.get("BENCH_FLEET_SUBMISSIONS", "150"))
POLL = {"WORKER_POLL_INTERVAL_MS": "10000"}  # of both, so that a wake-up that is missed shows
MOST_OF_DIRECT = 1.5


class Direct(Convertq):
    name = "convertq, direct"

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return POLL


class BehindPgBouncer(Convertq):
    name = "convertq behind PgBouncer"

    def __init__(self, server_port: int) -> None:
        self._server_port, self._pooler_port = server_port, 0

    @contextmanager
    def serving(self, place: Place) -> Iterator[list[int]]:
        with pgbouncer(self._server_port) as pooler:
            self._pooler_port = pooler.port
            yield [pooler.pid]

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        pooled = place.database_url.replace(f":{self._server_port}/", f":{self._pooler_port}/", 1)
        return {**POLL, "DATABASE_URL": pooled, "DATABASE_DIRECT_URL": place.database_url}


def row(postgres: DurablePostgres, gateway: Gateway) -> Row:
    direct, pooled = Direct(), BehindPgBouncer(postgres.port)
    times = measure_contenders(postgres, gateway, SUBMISSIONS, [direct, pooled])
    name = "submit → gateway request, idle workers behind PgBouncer: p50 against direct ones"
    return ratio_at_most(name, MOST_OF_DIRECT, times[pooled.name], times[direct.name], "ms", rounds=False)
