"""Prometheus metrics, read from the database: one scrape is the truth for the whole cluster."""

from __future__ import annotations

from collections.abc import Iterator

from convertq.worker.config import Config
from convertq.worker.counters import STATUSES, Counters
from convertq.worker.db import Database
from convertq.worker.errors import Code
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

#: answers to a request, not ends of a job
NEVER_OF_A_JOB = (Code.NOT_READY, Code.EXPIRED, Code.FORBIDDEN)
#: s; upper bounds, as count_events in sql/migrations sorts the calls
BUCKETS = ("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "120.0", "+Inf")


def metrics_text(database: Database, config: Config) -> bytes:
    return generate_latest(registry_of(DatabaseCollector(database, config)))


def registry_of(collector: Collector) -> CollectorRegistry:
    """Without prometheus_client's own metrics of this process, which say nothing about the queue."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


class DatabaseCollector(Collector):
    def __init__(self, database: Database, config: Config) -> None:
        self._database, self._config = database, config

    def describe(self) -> list[Metric]:
        return []  # so that registering it asks the database nothing

    def collect(self) -> Iterator[Metric]:
        """All is asked before the first word: a scrape is whole or fails."""
        breaker = self._database.run("get_breaker", window=self._config.circuit_window)[0]
        age = self._database.run("get_queue_age")[0]["seconds"]
        rows = self._database.run("count_servers", heartbeat_timeout=self._config.worker_heartbeat_timeout_sec)
        servers = {row["status"]: row["servers"] for row in rows}
        counters = Counters(self._database)
        yield from _jobs(counters)
        yield _gauge("oldest_queued_seconds", "How long the first of the queue has waited; 0: it is empty", age or 0)
        yield _gateway_duration(counters)
        yield _gauge("breaker_open", "1 while the breaker holds the queue", int(breaker["state"] != "closed"))
        yield _counter("breaker_open_seconds", "How long the breaker was open, in all", breaker["open_seconds_total"])
        yield _gauges("servers", "Supervisors by status; a silent one is dead", "status", servers)


def _jobs(counters: Counters) -> Iterator[Metric]:
    by_status = {status: counters("jobs", status) for status in STATUSES}
    failed = {str(code): 0 for code in Code if code not in NEVER_OF_A_JOB} | counters.by_label("jobs_failed")
    yield _gauges("jobs", "Jobs by status", "status", by_status)
    yield _counter("jobs_created", "Jobs that were ever created", counters("jobs_created"))
    yield _counter("jobs_completed", "Times that a job was completed", counters("jobs_completed"))
    yield _counters("jobs_failed", "Times that a job failed for good, by error code", "code", failed)
    yield _counter("retries", "Attempts that failed and were scheduled again", counters("retries"))


def _gateway_duration(counters: Counters) -> HistogramMetricFamily:
    so_far, buckets = 0, []
    for bound in BUCKETS:
        so_far += counters("gateway_calls", bound)
        buckets.append((bound, so_far))
    about = "How long gateway calls took, failed ones included"
    return HistogramMetricFamily(
        "convertq_gateway_duration_seconds", about, buckets=buckets, sum_value=counters("gateway_ms") / 1000
    )


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"convertq_{name}", about, value=value)


def _gauges(name: str, about: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"convertq_{name}", about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    """prometheus_client appends `_total`."""
    return CounterMetricFamily(f"convertq_{name}", about, value=value)


def _counters(name: str, about: str, label: str, values: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"convertq_{name}", about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
