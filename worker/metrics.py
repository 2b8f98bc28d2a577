"""Prometheus metrics, read from the database: one scrape is the truth for the whole cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convertq.worker.config import Config
from convertq.worker.counters import STATUSES, Counters
from convertq.worker.db import Database
from convertq.worker.errors import Code

#: answers to a request, not ends of a job
NEVER_OF_A_JOB = (Code.NOT_READY, Code.EXPIRED, Code.FORBIDDEN)
#: s; upper bounds, as count_events in sql/migrations sorts the calls
BUCKETS = ("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "120.0", "+Inf")
Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
IN_A_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True)
class Family:
    """One metric: its samples have their whole names."""

    name: str
    kind: str
    about: str
    samples: tuple[Sample, ...]


def metrics_text(database: Database, config: Config) -> bytes:
    """The text format. Not by prometheus_client: its import alone takes a command longer than the answer does."""
    return "".join(line for family in collect(database, config) for line in _written(family)).encode()


def _written(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.about}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for name, labels, value in family.samples:
        pairs = ",".join(f'{label}="{text.translate(IN_A_LABEL)}"' for label, text in labels.items())
        yield f"{name}{{{pairs}}} {float(value)!r}\n" if pairs else f"{name} {float(value)!r}\n"


def collect(database: Database, config: Config) -> list[Family]:
    breaker = database.run("get_breaker", window=config.circuit_window)[0]
    age = database.run("get_queue_age")[0]["seconds"]
    rows = database.run("count_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
    servers = {row["status"]: row["servers"] for row in rows}
    counters = Counters(database)
    return [
        *_jobs(counters),
        _gauge("oldest_queued_seconds", "How long the first of the queue has waited; 0: it is empty", age or 0),
        _gateway_duration(counters),
        _gauge("breaker_open", "1 while the breaker holds the queue", int(breaker["state"] != "closed")),
        _counter("breaker_open_seconds", "How long the breaker was open, in all", breaker["open_seconds_total"]),
        _gauges("servers", "Supervisors by status; a silent one is dead", "status", servers),
    ]


def _jobs(counters: Counters) -> Iterator[Family]:
    by_status = {status: counters("jobs", status) for status in STATUSES}
    failed = {str(code): 0 for code in Code if code not in NEVER_OF_A_JOB} | counters.by_label("jobs_failed")
    yield _gauges("jobs", "Jobs by status", "status", by_status)
    yield _counter("jobs_created", "Jobs that were ever created", counters("jobs_created"))
    yield _counter("jobs_completed", "Times that a job was completed", counters("jobs_completed"))
    yield _counters("jobs_failed", "Times that a job failed for good, by error code", "code", failed)
    yield _counter("retries", "Attempts that failed and were scheduled again", counters("retries"))


def _gateway_duration(counters: Counters) -> Family:
    name, so_far = "convertq_gateway_duration_seconds", 0
    samples: list[Sample] = []
    for bound in BUCKETS:
        so_far += counters("gateway_calls", bound)
        samples.append((f"{name}_bucket", {"le": bound}, so_far))
    samples += [(f"{name}_count", {}, so_far), (f"{name}_sum", {}, counters("gateway_ms") / 1000)]
    return Family(name, "histogram", "How long gateway calls took, failed ones included", tuple(samples))


def _gauge(name: str, about: str, value: float) -> Family:
    return Family(f"convertq_{name}", "gauge", about, ((f"convertq_{name}", {}, value),))


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(f"convertq_{name}", "gauge", about, _labelled(f"convertq_{name}", label, values))


def _counter(name: str, about: str, value: float) -> Family:
    return Family(f"convertq_{name}_total", "counter", about, ((f"convertq_{name}_total", {}, value),))


def _counters(name: str, about: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(f"convertq_{name}_total", "counter", about, _labelled(f"convertq_{name}_total", label, values))


def _labelled(name: str, label: str, values: Mapping[str, float]) -> tuple[Sample, ...]:
    return tuple((name, {label: key}, value) for key, value in values.items())
