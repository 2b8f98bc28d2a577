"""The configuration: read once, whole, or refused whole without showing a secret."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import pytest
from convertq.queue.config import Config, ConfigError, read_config
from convertq.queue.pool_size import PoolSize
from convertq.queue.settings import SETTINGS

DATABASE = {"DATABASE_URL": "postgresql://u:secret@db.example:5433/app?schema=tenant"}
DEFAULTS = {
    "uploads_dir": Path("/app/uploads"), "results_dir": Path("/app/results"), "worker_concurrency": PoolSize(4, 4),
    "worker_lease_ttl_sec": 600, "worker_lease_extend_sec": 30, "worker_heartbeat_sec": 10,
    "worker_heartbeat_timeout_sec": 40, "worker_poll_interval_ms": 1500, "worker_shutdown_grace_sec": 60,
    "worker_max_jobs": 0, "scale_target_sec": 60, "worker_environment": "dev", "fair_share": False,
    "owner_max_running": 0, "gateway_timeout_ms": 180000, "gateway_health_path": "/health",
    "retry_max_attempts": 3, "retry_base_delay_ms": 5000, "retry_jitter_max_ms": 5000, "circuit_window": 20,
    "circuit_fail_threshold": 0.5, "circuit_cooldown_ms": 30000, "mappings_allowed": ("pt_simon_invoice_v1",),
    "max_upload_bytes": 52428800, "results_min_free_mb": 100, "retention_uploads_days": 7,
    "retention_results_days": 30, "retention_events_days": 90, "retention_jobs_days": 0,
    "storage_url": None, "storage_read_url": None, "s3_endpoint_url": None, "s3_region": "us-east-1",
    "s3_presigned_downloads": False, "s3_public_endpoint_url": None,
    "log_level": "INFO", "log_file": None, "metrics_port": None, "metrics_host": "127.0.0.1",
}  # fmt: skip
ZERO_ALLOWED = [
    "WORKER_MAX_JOBS", "WORKER_SHUTDOWN_GRACE_SEC", "RETRY_BASE_DELAY_MS", "RETRY_JITTER_MAX_MS",
    "CIRCUIT_COOLDOWN_MS", "RESULTS_MIN_FREE_MB", "RETENTION_UPLOADS_DAYS", "RETENTION_RESULTS_DAYS",
    "RETENTION_EVENTS_DAYS", "RETENTION_JOBS_DAYS",
]  # fmt: skip
AT_LEAST_ONE = [
    "WORKER_CONCURRENCY", "WORKER_LEASE_TTL_SEC", "WORKER_LEASE_EXTEND_SEC", "WORKER_HEARTBEAT_SEC",
    "WORKER_HEARTBEAT_TIMEOUT_SEC", "WORKER_POLL_INTERVAL_MS", "GATEWAY_TIMEOUT_MS", "RETRY_MAX_ATTEMPTS",
    "CIRCUIT_WINDOW", "CIRCUIT_FAIL_THRESHOLD", "MAX_UPLOAD_BYTES", "METRICS_PORT",
]  # fmt: skip


def read(**variables: str) -> Config:
    return read_config(DATABASE | variables)


def problems_of(**variables: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read_config(DATABASE | variables, needs_gateway=True)
    return refused.value.problems


def test_every_default_is_the_published_one() -> None:
    config = read()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(("text", "size"), [("7", (7, 7)), ("2..16", (2, 16)), ("3..3", (3, 3))])
def test_the_size_of_the_pool_is_a_number_or_a_range(text: str, size: tuple[int, int]) -> None:
    assert read(WORKER_CONCURRENCY=text).worker_concurrency == size


@pytest.mark.parametrize("text", ["0..4", "5..4", "1..1001", "1..", "..4", "1...4", "1-4", "1..4..8", "a..b", "-1..2"])
def test_a_wrong_range_is_refused_with_what_is_allowed(text: str) -> None:
    allowed = "must be a whole number from 1 to 1000, or a range such as 2..16"
    assert f"WORKER_CONCURRENCY = '{text}': {allowed}" in problems_of(WORKER_CONCURRENCY=text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://documents", "s3://documents/"),
        ("s3://documents/", "s3://documents/"),
        ("s3://documents/a/b", "s3://documents/a/b/"),
        ("s3://documents//a//", "s3://documents/a/"),
    ],
)
def test_a_prefix_gets_one_slash_at_its_end(text: str, url: str) -> None:
    assert str(read(STORAGE_URL=text).storage_url) == url


@pytest.mark.parametrize(
    "text",
    ["documents", "https://documents", "s3://", "s3://Documents", "s3://a/../b", "s3://k:s@documents", "s3://a b"],
)
def test_a_malformed_storage_url_is_refused(text: str) -> None:
    assert problems_of(STORAGE_URL=text, GATEWAY_URL="http://g")[0].startswith("STORAGE_URL = ")


def test_the_region_is_that_of_aws_unless_it_is_set() -> None:
    assert read(AWS_REGION="eu-west-1").s3_region == "eu-west-1"
    assert read(AWS_REGION="eu-west-1", S3_REGION="eu-central-1").s3_region == "eu-central-1"


def test_object_storage_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (problem,) = problems_of(STORAGE_URL="s3://documents", GATEWAY_URL="http://g")
    assert problem == "STORAGE_URL = 's3://documents/': needs minio: pip install 'convertq[s3]'"


def test_an_empty_variable_counts_as_unset() -> None:
    names = [setting.variable for setting in SETTINGS if setting.variable != "DATABASE_URL"]
    assert [name for name in names if read(**{name: ""}) != read()] == []


def test_it_cannot_be_changed_once_read() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read().worker_concurrency = PoolSize(5, 5)  # type: ignore[misc]


@pytest.mark.parametrize("variable", ZERO_ALLOWED)
def test_zero_is_allowed_where_it_means_something(variable: str) -> None:
    assert getattr(read(**{variable: "0"}), variable.lower()) == 0


@pytest.mark.parametrize("variable", AT_LEAST_ONE)
def test_zero_is_refused_elsewhere(variable: str) -> None:
    [problem] = problems_of(GATEWAY_URL="http://gateway", **{variable: "0"})
    assert problem.startswith(f"{variable} = '0': must be")


def test_every_wrong_value_is_named_at_once_with_what_is_allowed() -> None:
    problems = problems_of(WORKER_CONCURRENCY="many", LOG_LEVEL="loud", UPLOADS_DIR="uploads", GATEWAY_URL="ftp://x")
    assert problems == [
        "GATEWAY_URL = 'ftp://x': must be http://host:port or https://host:port",
        "UPLOADS_DIR = 'uploads': must be an absolute path",
        "WORKER_CONCURRENCY = 'many': must be a whole number from 1 to 1000, or a range such as 2..16",
        "LOG_LEVEL = 'loud': must be one of DEBUG, INFO, WARNING, ERROR",
    ]


@pytest.mark.parametrize("text", ["-1", "1.5", "1e3", "0x10", "٣", "+5", "1_000", "9" * 30, "five"])
def test_only_plain_whole_numbers_are_numbers(text: str) -> None:
    assert len(problems_of(GATEWAY_URL="http://gateway", WORKER_CONCURRENCY=text)) == 1


@pytest.mark.parametrize("text", ["0", "1.01", "-0.5", "nan", "inf", "half"])
def test_the_threshold_is_a_share(text: str) -> None:
    assert "CIRCUIT_FAIL_THRESHOLD" in problems_of(GATEWAY_URL="http://gateway", CIRCUIT_FAIL_THRESHOLD=text)[0]


def test_the_largest_upload_that_is_announced_as_allowed_is_allowed() -> None:
    assert read(MAX_UPLOAD_BYTES=str(2**40)).max_upload_bytes == 2**40


@pytest.mark.parametrize(("extend", "allowed"), [("199", True), ("200", False), ("201", False)])
def test_a_lease_is_extended_in_under_a_third_of_its_time(extend: str, allowed: bool) -> None:
    variables = {
        "WORKER_LEASE_TTL_SEC": "600",
        "WORKER_LEASE_EXTEND_SEC": extend,
        "GATEWAY_URL": "http://gateway",
    }
    if allowed:
        assert read(**variables).worker_lease_extend_sec == int(extend)
    else:
        assert "under a third of WORKER_LEASE_TTL_SEC" in problems_of(**variables)[0]


@pytest.mark.parametrize("text", ["http://h:1", "http://h:1/", "http://h:1/process", "http://h:1/process/"])
def test_the_gateway_is_known_with_and_without_the_path(text: str) -> None:
    assert read(GATEWAY_URL=text).gateway_url == "http://h:1"


def test_a_gateway_behind_a_prefix_keeps_it() -> None:
    assert read(GATEWAY_URL="https://h/convert/process").gateway_url == "https://h/convert"


@pytest.mark.parametrize(
    "text", ["h:1", "//h", "http://", "http://h:x", "http://h:99999", "http://h/?a=b", "http://[::1"]
)
def test_a_gateway_that_is_no_address_is_refused(text: str) -> None:
    assert len(problems_of(GATEWAY_URL=text)) == 1


def test_only_a_worker_needs_the_gateway() -> None:
    assert read().gateway_url == ""
    assert problems_of() == ["GATEWAY_URL is not set: http://host:port of the conversion gateway"]


def test_the_database_is_always_needed_and_its_form_is_shown() -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL is not set: postgresql://"):
        read_config({})


def test_the_other_urls_have_the_schema_of_the_database_and_no_other() -> None:
    config = read(DATABASE_DIRECT_URL="postgresql://direct/app", DATABASE_READ_URL="postgresql://a,b/app?schema=tenant")
    assert config.direct_database.schema == "tenant"
    assert config.database_read_url is not None
    assert config.database_read_url.schema == "tenant"
    assert read().direct_database.shown == read().database.shown
    with pytest.raises(ConfigError, match="DATABASE_DIRECT_URL: its schema 'other' must be that of DATABASE_URL"):
        read(DATABASE_DIRECT_URL="postgresql://u:secret@direct/app?schema=other")


def test_mappings_are_a_list_without_blanks_and_repeats() -> None:
    assert read(MAPPINGS_ALLOWED=" a, b,,a ").mappings_allowed == ("a", "b")


def test_no_secret_is_in_what_is_shown_of_it() -> None:
    config = read(GATEWAY_URL="http://u:hunter2@gateway")
    assert "secret" not in repr(config)
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    "variables",
    [
        {"DATABASE_URL": "mysql://u:hunter2@h/db"},
        {"DATABASE_URL": "postgresql://u:hunter2@h/db?no_such=1"},
        {"DATABASE_URL": "postgresql://u:hunter2@h/db?schema=1x"},
        {"DATABASE_URL": "postgresql://u:hunter2%zz@h/db"},
        {"DATABASE_URL": "postgresql://h/db?user=u&password=hunter2%zz"},
        {"DATABASE_URL": "postgresql://u:hunter2/x@h/db"},
        {"DATABASE_URL": "postgresql://u:x/hunter2@h/db"},
        {"DATABASE_URL": "postgresql://u:x@hunter2@h:port/db"},
        {"DATABASE_URL": "postgresql://h:port/db?password=x@hunter2"},
        {"DATABASE_URL": "host=h password=hunter2"},
        {"GATEWAY_URL": "ftp://u:hunter2@h"},
        {"GATEWAY_URL": "http://u:x/hunter2@h"},
        {"GATEWAY_URL": "u:hunter2@h"},
        {"ADMIN_TOKEN": "hunter2 hunter2"},
        {"GATEWAY_URL": "http://u:hunter2℀@h"},
    ],
)
def test_no_secret_is_in_a_refusal(variables: dict[str, str]) -> None:
    assert "hunter2" not in "\n".join(problems_of(**({"GATEWAY_URL": "http://gateway"} | variables)))


@pytest.mark.parametrize(
    ("variable", "text", "shown"),
    [
        ("DATABASE_URL", "postgresql://u:hunter2@h:port/db", "postgresql://u:***@h:port/db"),
        ("DATABASE_URL", "mysql://h/db", "mysql://h/db"),
        ("GATEWAY_URL", "http://u:hunter2@h/?a=b", "http://***@h/?a=b"),
    ],
)
def test_a_refusal_shows_the_url_without_its_password(variable: str, text: str, shown: str) -> None:
    [problem] = problems_of(**({"GATEWAY_URL": "http://gateway"} | {variable: text}))
    assert problem.startswith(f"{variable} = {shown!r}: ")
