"""The configuration: read once from the environment, whole, into one frozen object, or refused whole."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from convertq.worker.database_url import DatabaseUrl, parse_database_url

EX_CONFIG = 78


class ConfigError(Exception):
    """Every problem, one a line, each with its variable, its value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Config:
    database: DatabaseUrl
    gateway_url: str = field(repr=False)  # may hold credentials; empty where the command needs no gateway
    uploads_dir: Path
    results_dir: Path
    worker_concurrency: int
    worker_lease_ttl_sec: int
    worker_lease_extend_sec: int
    worker_heartbeat_sec: int
    worker_heartbeat_timeout_sec: int
    worker_poll_interval_ms: int
    worker_shutdown_grace_sec: int
    worker_max_jobs: int
    worker_environment: str
    gateway_timeout_ms: int
    gateway_health_path: str
    retry_max_attempts: int
    retry_base_delay_ms: int
    retry_jitter_max_ms: int
    circuit_window: int
    circuit_fail_threshold: float
    circuit_cooldown_ms: int
    mappings_allowed: tuple[str, ...]
    max_upload_bytes: int
    results_min_free_mb: int
    retention_uploads_days: int
    retention_results_days: int
    retention_events_days: int
    log_level: str
    log_format: str
    log_file: Path | None
    metrics_port: int | None
    metrics_host: str
    web_host: str
    web_port: int
    web_processes: int
    session_max_active: int
    admin_token: str | None = field(repr=False)  # None: there are no routes for operators


# -- what a value may be: each reader returns it or raises ValueError with what is allowed --


def whole_number(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,13}", text.strip()) or not minimum <= int(text) <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return int(text)

    return read


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise ValueError("must be a number over 0 and up to 1, such as 0.5")
    return value


def one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        for value in allowed:
            if text.lower() == value.lower():
                return value
        raise ValueError(f"must be one of {', '.join(allowed)}")

    return read


def absolute_path(text: str) -> Path:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path")
    return Path(text)


def label(text: str) -> str:
    if not text.isprintable() or len(text) > 100:
        raise ValueError("must be printable, at most 100 characters")
    return text


def names(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError("must be names, separated by commas")
    return found


def gateway_url(text: str) -> str:
    """The base of the gateway, without the trailing /process."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:  # its message would quote the credentials
        known = False
    if not known or parts.query or parts.fragment:
        raise ValueError("must be http://host:port or https://host:port")
    return text.rstrip("/").removesuffix("/process").rstrip("/")


def token(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be printable ASCII without spaces, such as `openssl rand -hex 32` makes")
    return text


def url_path(text: str) -> str:
    if not text.startswith("/") or not text.isprintable() or " " in text:
        raise ValueError("must be a path that starts with /")
    return text


@dataclass(frozen=True)
class Setting:
    variable: str
    read: Callable[[str], Any]
    default: str | None = None  # None: there is none
    secret: bool = False  # its value is never shown

    @property
    def attribute(self) -> str:
        return "database" if self.variable == "DATABASE_URL" else self.variable.lower()


positive = whole_number(1)
zero_or_more = whole_number(0)

SETTINGS = (
    Setting("DATABASE_URL", parse_database_url, secret=True),
    Setting("GATEWAY_URL", gateway_url, secret=True),
    Setting("UPLOADS_DIR", absolute_path, "/app/uploads"),
    Setting("RESULTS_DIR", absolute_path, "/app/results"),
    Setting("WORKER_CONCURRENCY", whole_number(1, 1000), "4"),
    Setting("WORKER_LEASE_TTL_SEC", positive, "600"),
    Setting("WORKER_LEASE_EXTEND_SEC", positive, "30"),
    Setting("WORKER_HEARTBEAT_SEC", positive, "10"),
    Setting("WORKER_HEARTBEAT_TIMEOUT_SEC", positive, "40"),
    Setting("WORKER_POLL_INTERVAL_MS", positive, "1500"),
    Setting("WORKER_SHUTDOWN_GRACE_SEC", zero_or_more, "60"),
    Setting("WORKER_MAX_JOBS", zero_or_more, "0"),
    Setting("WORKER_ENVIRONMENT", label, "dev"),
    Setting("GATEWAY_TIMEOUT_MS", positive, "180000"),
    Setting("GATEWAY_HEALTH_PATH", url_path, "/health"),
    Setting("RETRY_MAX_ATTEMPTS", positive, "3"),
    Setting("RETRY_BASE_DELAY_MS", zero_or_more, "5000"),
    Setting("RETRY_JITTER_MAX_MS", zero_or_more, "5000"),
    Setting("CIRCUIT_WINDOW", positive, "20"),
    Setting("CIRCUIT_FAIL_THRESHOLD", share, "0.5"),
    Setting("CIRCUIT_COOLDOWN_MS", zero_or_more, "30000"),
    Setting("MAPPINGS_ALLOWED", names, "pt_simon_invoice_v1"),
    Setting("MAX_UPLOAD_BYTES", whole_number(1, 2**40), "52428800"),
    Setting("RESULTS_MIN_FREE_MB", zero_or_more, "100"),
    Setting("RETENTION_UPLOADS_DAYS", whole_number(0, 36500), "7"),
    Setting("RETENTION_RESULTS_DAYS", whole_number(0, 36500), "30"),
    Setting("RETENTION_EVENTS_DAYS", whole_number(0, 36500), "90"),
    Setting("LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO"),
    Setting("LOG_FORMAT", one_of("json", "text"), None),
    Setting("LOG_FILE", absolute_path, None),
    Setting("METRICS_PORT", whole_number(1, 65535), None),
    Setting("METRICS_HOST", label, "127.0.0.1"),
    Setting("WEB_HOST", label, "127.0.0.1"),
    Setting("WEB_PORT", whole_number(1, 65535), "8000"),
    Setting("WEB_PROCESSES", whole_number(1, 100), "2"),
    Setting("SESSION_MAX_ACTIVE", positive, "100"),
    Setting("ADMIN_TOKEN", token, None, secret=True),
)


def read_config(environment: Mapping[str, str], *, needs_gateway: bool = False) -> Config:
    """Raises ConfigError with every problem at once."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        text = environment.get(setting.variable) or setting.default
        if text is None:
            values[setting.attribute] = _unset(setting, needs_gateway, problems)
            continue
        try:
            values[setting.attribute] = setting.read(text)
        except ValueError as error:
            shown = "" if setting.secret else f" = {text[:80]!r}"
            problems.append(f"{setting.variable}{shown}: {error}")
    _check_lease(values, problems)
    if problems:
        raise ConfigError(problems)
    return Config(**values)


def _unset(setting: Setting, needs_gateway: bool, problems: list[str]) -> Any:
    match setting.variable:
        case "DATABASE_URL":
            problems.append("DATABASE_URL is not set: postgresql://user:password@host:port/database")
        case "GATEWAY_URL":
            if needs_gateway:
                problems.append("GATEWAY_URL is not set: http://host:port of the conversion gateway")
            return ""
        case "LOG_FORMAT":
            return "text" if sys.stderr.isatty() else "json"
    return None


def _check_lease(values: Mapping[str, Any], problems: list[str]) -> None:
    ttl, extend = values.get("worker_lease_ttl_sec"), values.get("worker_lease_extend_sec")
    if ttl and extend and extend * 3 >= ttl:
        problems.append(
            f"WORKER_LEASE_EXTEND_SEC = '{extend}': must be under a third of WORKER_LEASE_TTL_SEC = '{ttl}'"
        )
