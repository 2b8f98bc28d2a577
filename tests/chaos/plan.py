"""The plan of a storm: which fault, when, where and for how long, all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.length import LONGER_THAN_ANSWER_TIMEOUT_SECONDS, STORE

HOSTS = 2
WORKERS = 4
#: s. The leases of the storm are this short, so that a pause can outlast one.
LEASE_TTL_SECONDS = 10
HEARTBEAT_TIMEOUT_SECONDS = 5


class Kind(StrEnum):
    KILL_WORKER = "worker killed (SIGKILL)"
    KILL_SUPERVISOR = "supervisor killed (SIGKILL)"
    PAUSE_WORKER = "worker stopped and continued"
    PAUSE_WORKER_PAST_LEASE = "worker stopped past its lease"
    PAUSE_SUPERVISOR = "supervisor stopped past its heartbeat, workers running"
    PAUSE_HOST = "whole host stopped past its leases"
    RESTART_FAST = "PostgreSQL stopped (fast) and started"
    RESTART_IMMEDIATE = "PostgreSQL stopped (immediate) and started"
    END_BACKENDS = "backends ended (pg_terminate_backend)"
    CUT = "connections of a host reset"
    REFUSE = "connections of a host reset and refused"
    STALL = "network of a host silent, bytes delivered late"
    SWALLOW = "network of a host silent, bytes lost"
    OUTAGE = "PostgreSQL stopped past the heartbeat timeout"
    FREEZE = "PostgreSQL frozen (SIGSTOP) past the heartbeat timeout"
    SWALLOW_ALL = "network of every host silent past the heartbeat timeout"
    STALL_STANDBY = "commits stalled by a synchronous standby"
    LOCK_ROW = "row locked by a foreign transaction"
    MIGRATE = "migration to a later release behind a reader"
    FILL_DISK = "result disk filled"
    GATEWAY_DOWN = "gateway stopped"
    KILL_STORAGE = "storage killed (SIGKILL) and started"
    FREEZE_STORAGE = "storage frozen (SIGSTOP)"
    REFUSE_STORAGE = "connections to the storage reset and refused"


@dataclass(frozen=True)
class Fault:
    """`seconds` is how long it lasts before it is undone; `slot` is where the search for a busy worker begins."""

    at: float
    kind: Kind
    host: int
    slot: int
    seconds: float


@dataclass(frozen=True)
class Shape:
    weight: int  # how often, against the others
    shortest: float  # s
    longest: float


SHAPES = {
    Kind.KILL_WORKER: Shape(6, 0, 0),
    Kind.KILL_SUPERVISOR: Shape(3, 0.2, 4),
    Kind.PAUSE_WORKER: Shape(3, 0.5, 4),
    Kind.PAUSE_WORKER_PAST_LEASE: Shape(2, LEASE_TTL_SECONDS + 2, LEASE_TTL_SECONDS + 5),
    Kind.PAUSE_SUPERVISOR: Shape(1, HEARTBEAT_TIMEOUT_SECONDS + 2, HEARTBEAT_TIMEOUT_SECONDS + 6),
    Kind.PAUSE_HOST: Shape(1, LEASE_TTL_SECONDS + 2, LEASE_TTL_SECONDS + 4),
    Kind.RESTART_FAST: Shape(2, 0.2, 3),
    Kind.RESTART_IMMEDIATE: Shape(2, 0.2, 3),
    Kind.END_BACKENDS: Shape(3, 0, 0),
    Kind.CUT: Shape(3, 0, 0),
    Kind.REFUSE: Shape(2, 1, 6),
    Kind.STALL: Shape(2, 2, LEASE_TTL_SECONDS + 8),
    Kind.SWALLOW: Shape(2, 2, LEASE_TTL_SECONDS + 8),
    Kind.OUTAGE: Shape(1, HEARTBEAT_TIMEOUT_SECONDS + 1, HEARTBEAT_TIMEOUT_SECONDS + 3),
    Kind.FREEZE: Shape(1, HEARTBEAT_TIMEOUT_SECONDS + 1, HEARTBEAT_TIMEOUT_SECONDS + 3),
    Kind.SWALLOW_ALL: Shape(1, HEARTBEAT_TIMEOUT_SECONDS + 1, HEARTBEAT_TIMEOUT_SECONDS + 3),
    Kind.STALL_STANDBY: Shape(1, LONGER_THAN_ANSWER_TIMEOUT_SECONDS - 2, LONGER_THAN_ANSWER_TIMEOUT_SECONDS),
    Kind.LOCK_ROW: Shape(3, 2, LEASE_TTL_SECONDS - 2),
    Kind.MIGRATE: Shape(1, 2, 8),
    Kind.FILL_DISK: Shape(1, 2, 4),
    Kind.GATEWAY_DOWN: Shape(1, 2, 4),
}
if STORE == "s3":
    SHAPES |= {
        Kind.KILL_STORAGE: Shape(2, 0.5, 6),
        Kind.FREEZE_STORAGE: Shape(2, 1, 8),
        Kind.REFUSE_STORAGE: Shape(2, 0.2, 6),
    }
FIRST_FAULT_SECONDS = 3.0  # until then jobs run undisturbed
GAP = (1.0, 4.0)  # s between two faults


def draw_plan(seed: int, seconds: float) -> list[Fault]:
    """Every kind comes once, in any order, before any comes by its weight: a short storm has them all too."""
    dice = random.Random(seed)
    once = list(SHAPES)
    dice.shuffle(once)
    faults: list[Fault] = []
    at = FIRST_FAULT_SECONDS
    while at < seconds:
        by_weight = dice.choices(list(SHAPES), [shape.weight for shape in SHAPES.values()])[0]
        kind = once.pop() if once else by_weight
        shape = SHAPES[kind]
        lasts = dice.uniform(shape.shortest, shape.longest)
        faults.append(Fault(at, kind, dice.randrange(HOSTS), dice.randrange(WORKERS), lasts))
        at += dice.uniform(*GAP)
    return faults
