"""Prometheus metrics, read from the database: one scrape describes the whole cluster.

The command, the web and METRICS_PORT have the same families from here, and prometheus_client renders them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convertq.queue.breaker_state import get_breakers
from convertq.queue.config import Config
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.estimate_upkeep import get_covered_ratio
from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.pauses import list_pauses
from convertq.queue.scale import get_scale
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
    "convertq_jobs_cancelled_total": Metric("counter", "Jobs cancelled; a job that is cancelled again counts again."),
    "convertq_retries_total": Metric("counter", "Failed attempts that were scheduled again; manual retries excluded."),
    "convertq_oldest_queued_seconds": Metric(
        "gauge", "How long the oldest queued job has waited since `queued_at`; 0 when the queue is empty."
    ),
    "convertq_gateway_duration_seconds": Metric(
        "histogram", "Duration of gateway calls, failed calls included.", "gateway"
    ),
    "convertq_gateway_calls": Metric("gauge", "Slots of a gateway with a limit that workers hold now.", "gateway"),
    "convertq_gateway_max_calls": Metric("gauge", "The limit of simultaneous calls; 0: no limit.", "gateway"),
    "convertq_breaker_open": Metric("gauge", "1 while the breaker is open or half-open.", "gateway"),
    "convertq_breaker_open_seconds_total": Metric(
        "counter", "Time that the breaker was open, the current opening included.", "gateway"
    ),
    "convertq_pauses": Metric("gauge", "Pauses in force, of a gateway, an owner, both or everything."),
    "convertq_wanted_workers": Metric(
        "gauge", "Workers that finish the queued jobs within SCALE_TARGET_SEC; 0: there is nothing to do."
    ),
    "convertq_estimate_covered_ratio": Metric(
        "gauge",
        "Of the last 1,000 completed jobs of a sample, the share that was done by the `done_by` estimated when they "
        "were queued: about 0.9. Absent before the first.",
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
    breakers, servers = get_breakers(database, config), count_servers(database, config)
    counters = Counters(database)
    return [
        *_jobs(counters),
        _one("convertq_oldest_queued_seconds", get_queue_age(database) or 0),
        _gateway_duration(counters, breakers),
        *_gateways(breakers),
        _one("convertq_pauses", len(list_pauses(database))),
        _one("convertq_wanted_workers", get_scale(database, config)["wanted_workers"]),
        *_estimates(get_covered_ratio(database)),
        _labelled("convertq_servers", {status.value: servers[status] for status in ServerStatus}),
    ]


def _jobs(counters: Counters) -> Iterator[Family]:
    """A code that no job has failed with yet is 0: an alert on its increase sees the first one."""
    failed = {str(code): 0 for code in Code if code not in NEVER_OF_A_JOB} | counters.by_label("jobs_failed")
    yield _labelled("convertq_jobs", {status.value: counters("jobs", status) for status in JobStatus})
    yield _one("convertq_jobs_created_total", counters("jobs_created"))
    yield _one("convertq_jobs_completed_total", counters("jobs_completed"))
    yield _labelled("convertq_jobs_failed_total", failed)
    yield _one("convertq_jobs_cancelled_total", counters("jobs_cancelled"))
    yield _one("convertq_retries_total", counters("retries"))


def _gateways(breakers: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    def each(name: str, value: Callable[[Mapping[str, Any]], float]) -> Family:
        return _labelled(name, {gateway: value(breaker) for gateway, breaker in breakers.items()})

    yield each("convertq_gateway_calls", lambda breaker: breaker["running_calls"] or 0)
    yield each("convertq_gateway_max_calls", lambda breaker: breaker["max_calls"] or 0)
    yield each("convertq_breaker_open", lambda breaker: int(breaker["state"] != "closed"))
    yield each("convertq_breaker_open_seconds_total", lambda breaker: breaker["open_seconds_total"])


def _estimates(ratio: float | None) -> Iterator[Family]:
    if ratio is not None:
        yield _one("convertq_estimate_covered_ratio", ratio)


def _gateway_duration(counters: Counters, gateways: Iterable[str]) -> Family:
    """The counters of `default` have no prefix: see count_events in sql/migrations."""
    name = "convertq_gateway_duration_seconds"
    family = HistogramMetricFamily(name, METRICS[name].about, labels=["gateway"])
    for gateway in gateways:
        prefix = "" if gateway == DEFAULT_GATEWAY else f"{gateway}/"
        calls, buckets = 0, []
        for bound in BUCKETS:
            calls += counters("gateway_calls", prefix + bound)
            buckets.append((bound, calls))
        family.add_metric([gateway], buckets, sum_value=counters("gateway_ms", prefix) / 1000)
    return family


def _one(name: str, value: float) -> Family:
    return _labelled(name, {"": value})


def _labelled(name: str, values: Mapping[str, float]) -> Family:
    metric = METRICS[name]
    make = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
    family = make(name, metric.about, labels=[metric.label] if metric.label else [])
    for label, value in values.items():
        family.add_metric([label] if metric.label else [], value)
    return family
