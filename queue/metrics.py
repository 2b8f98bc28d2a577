"""Prometheus metrics, read from the database: one scrape describes the whole cluster.

The command, the web and METRICS_PORT have the same families from here, and prometheus_client renders them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from convertq.queue.breaker_state import get_breaker
from convertq.queue.config import Config
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.servers import ServerStatus, count_servers
from convertq.queue.stats import get_queue_age
from convertq.queue.status import JobStatus
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

#: These codes answer a request; no job fails with one of them.
NEVER_OF_A_JOB = (Code.NOT_READY, Code.EXPIRED, Code.FORBIDDEN)
#: Upper bounds in seconds, the same as those of the function count_events in sql/migrations.
BUCKETS = ("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "120.0", "+Inf")


@dataclass(frozen=True)
class Metric:
    kind: str
    about: str  # the HELP line, and monitoring/README.md (`make docs`)
    label: str = ""


METRICS = {
    "convertq_jobs": Metric("gauge", "Jobs in each status.", "status"),
    "convertq_jobs_created_total": Metric("counter", "Jobs created."),
    "convertq_jobs_completed_total": Metric("counter", "Completions; a job that runs again counts again."),
    "convertq_jobs_failed_total": Metric("counter", "Jobs that failed for good, by error code.", "code"),
    "convertq_retries_total": Metric("counter", "Failed attempts that were scheduled again; manual retries excluded."),
    "convertq_oldest_queued_seconds": Metric(
        "gauge", "How long the oldest queued job has waited since `queued_at`; 0 when the queue is empty."
    ),
    "convertq_gateway_duration_seconds": Metric("histogram", "Duration of gateway calls, failed calls included."),
    "convertq_breaker_open": Metric("gauge", "1 while the breaker is open or half-open."),
    "convertq_breaker_open_seconds_total": Metric(
        "counter", "Time that the breaker was open, the current opening included."
    ),
    "convertq_servers": Metric(
        "gauge", "Supervisors by status; one without a heartbeat for the timeout counts as dead.", "status"
    ),
}


def metrics_text(database: Database, config: Config) -> bytes:
    """All metrics in the text format of Prometheus."""
    return generate_latest(make_registry(Collected(read_metrics(database, config))))


def make_registry(collector: Collector) -> CollectorRegistry:
    """A registry of this collector alone. The default registry adds metrics of the process itself."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


class Collected(Collector):
    """Families that have been read already."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Family]:
        yield from self._families


def read_metrics(database: Database, config: Config) -> list[Family]:
    breaker, servers = get_breaker(database, config), count_servers(database, config)
    counters = Counters(database)
    return [
        *_jobs(counters),
        _one("convertq_oldest_queued_seconds", get_queue_age(database) or 0),
        _gateway_duration(counters),
        _one("convertq_breaker_open", int(breaker["state"] != "closed")),
        _one("convertq_breaker_open_seconds_total", breaker["open_seconds_total"]),
        _labelled("convertq_servers", {status.value: servers[status] for status in ServerStatus}),
    ]


def _jobs(counters: Counters) -> Iterator[Family]:
    """A code that no job has failed with yet is 0: an alert on its increase sees the first one."""
    failed = {str(code): 0 for code in Code if code not in NEVER_OF_A_JOB} | counters.by_label("jobs_failed")
    yield _labelled("convertq_jobs", {status.value: counters("jobs", status) for status in JobStatus})
    yield _one("convertq_jobs_created_total", counters("jobs_created"))
    yield _one("convertq_jobs_completed_total", counters("jobs_completed"))
    yield _labelled("convertq_jobs_failed_total", failed)
    yield _one("convertq_retries_total", counters("retries"))


def _gateway_duration(counters: Counters) -> Family:
    name, calls = "convertq_gateway_duration_seconds", 0
    buckets: list[tuple[str, float]] = []
    for bound in BUCKETS:
        calls += counters("gateway_calls", bound)
        buckets.append((bound, calls))
    seconds = counters("gateway_ms") / 1000
    return HistogramMetricFamily(name, METRICS[name].about, buckets=buckets, sum_value=seconds)


def _one(name: str, value: float) -> Family:
    return _labelled(name, {"": value})


def _labelled(name: str, values: Mapping[str, float]) -> Family:
    metric = METRICS[name]
    make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    family = make(name, metric.about, labels=[metric.label] if metric.label else [])
    for label, value in values.items():
        family.add_metric([label] if metric.label else [], value)
    return family
