"""The configuration: read once from the environment, whole, into one frozen object, or refused whole."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convertq.queue.database.url import DatabaseUrl
from convertq.queue.gateway import DEFAULT_GATEWAY, Gateway
from convertq.queue.masked_url import masked
from convertq.queue.pool_size import PoolSize
from convertq.queue.setting import Setting
from convertq.queue.settings import SETTINGS
from convertq.queue.storage_url import StorageUrl

EX_CONFIG = 78
#: A worker that exceeds its deadline, such as the gateway timeout, by this time is killed and its job requeued.
STUCK_AFTER_SECONDS = 30.0
DEFAULT_REGION = "us-east-1"
REPLACED_BY_GATEWAYS_FILE = ("GATEWAY_URL", "MAPPINGS_ALLOWED")


class ConfigError(Exception):
    """Every problem, one a line, each with its variable, its value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Config:
    database: DatabaseUrl
    database_direct_url: DatabaseUrl | None  # without the transaction pooler
    database_read_url: DatabaseUrl | None  # a replica
    gateway_url: str = field(repr=False)  # may hold credentials; empty where the command needs no gateway
    gateways_file: tuple[Gateway, ...] | None  # None: GATEWAY_URL describes the only gateway
    uploads_dir: Path
    results_dir: Path
    storage_url: StorageUrl | None  # None: the two directories
    storage_read_url: StorageUrl | None
    s3_endpoint_url: str | None  # None: AWS
    s3_region: str
    s3_presigned_downloads: bool
    s3_public_endpoint_url: str | None
    worker_concurrency: PoolSize
    worker_lease_ttl_sec: int
    worker_lease_extend_sec: int
    worker_heartbeat_sec: int
    worker_heartbeat_timeout_sec: int
    worker_poll_interval_ms: int
    worker_shutdown_grace_sec: int
    worker_max_jobs: int
    scale_target_sec: int
    worker_environment: str
    fair_share: bool
    owner_max_running: int  # 0: no limit
    gateway_timeout_ms: int
    gateway_health_path: str
    retry_max_attempts: int
    retry_base_delay_ms: int
    retry_jitter_max_ms: int
    circuit_window: int
    circuit_fail_threshold: float
    circuit_cooldown_ms: int
    mappings_allowed: tuple[str, ...]  # of all gateways
    max_upload_bytes: int
    results_min_free_mb: int
    retention_uploads_days: int
    retention_results_days: int
    retention_events_days: int
    retention_jobs_days: int
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

    @property
    def direct_database(self) -> DatabaseUrl:
        return self.database_direct_url or self.database

    @property
    def gateways(self) -> tuple[Gateway, ...]:
        """With every default applied, in the order of the file."""
        only = Gateway(DEFAULT_GATEWAY, self.gateway_url, self.mappings_allowed)
        return tuple(
            replace(
                gateway,
                timeout_ms=gateway.timeout_ms or self.gateway_timeout_ms,
                health_path=gateway.health_path or self.gateway_health_path,
            )
            for gateway in self.gateways_file or (only,)
        )

    @property
    def gateway_names(self) -> list[str]:
        return [gateway.name for gateway in self.gateways_file or ()] or [DEFAULT_GATEWAY]

    @property
    def heartbeat_gap_sec(self) -> float:
        """After a longer pause between two heartbeats of a server, the database counts as having been unreachable."""
        return max(self.worker_heartbeat_timeout_sec / 2, self.worker_heartbeat_sec * 1.5)


def is_ignored(setting: Setting, environment: Mapping[str, str]) -> bool:
    """With GATEWAYS_FILE, even a wrong value of the settings that it replaces does no harm."""
    return setting.variable in REPLACED_BY_GATEWAYS_FILE and bool(environment.get("GATEWAYS_FILE"))


def read_config(environment: Mapping[str, str], *, needs_gateway: bool = False) -> Config:
    """Raises ConfigError with every problem at once."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        given = None if is_ignored(setting, environment) else environment.get(setting.variable)
        text = given or setting.default
        if text is None:
            values[setting.attribute] = _unset(setting, environment, needs_gateway, problems)
            continue
        try:
            values[setting.attribute] = setting.read(text)
        except ValueError as error:
            shown = masked(text) if setting.secret else text
            problems.append(f"{setting.variable} = {shown[:80]!r}: {error}")
    if values.get("gateways_file"):
        values["mappings_allowed"] = tuple(name for each in values["gateways_file"] for name in each.mappings)
    _check_schemas(values, problems)
    _check_lease(values, problems)
    _check_storage(values, problems)
    if problems:
        raise ConfigError(problems)
    return Config(**values)


def _unset(setting: Setting, environment: Mapping[str, str], needs_gateway: bool, problems: list[str]) -> Any:
    match setting.variable:
        case "DATABASE_URL":
            problems.append("DATABASE_URL is not set: postgresql://user:password@host:port/database")
        case "GATEWAY_URL":
            if needs_gateway and not environment.get("GATEWAYS_FILE"):
                problems.append("GATEWAY_URL is not set: http://host:port of the conversion gateway")
            return ""
        case "S3_REGION":
            return environment.get("AWS_REGION") or DEFAULT_REGION
        case "LOG_FORMAT":
            return "text" if sys.stderr.isatty() else "json"
    return None


def _check_schemas(values: dict[str, Any], problems: list[str]) -> None:
    """All URLs lead to the same tables. One that names no schema means that of DATABASE_URL."""
    for name in ("database_direct_url", "database_read_url"):
        url, database = values.get(name), values.get("database")
        if url is None or database is None:
            continue
        if not url.names_schema:
            values[name] = replace(url, schema=database.schema)
        elif url.schema != database.schema:
            problems.append(
                f"{name.upper()}: its schema {url.schema!r} must be that of DATABASE_URL, {database.schema!r}"
            )


def _check_lease(values: Mapping[str, Any], problems: list[str]) -> None:
    ttl, extend = values.get("worker_lease_ttl_sec"), values.get("worker_lease_extend_sec")
    if ttl and extend and extend * 3 >= ttl:
        problems.append(
            f"WORKER_LEASE_EXTEND_SEC = '{extend}': must be under a third of WORKER_LEASE_TTL_SEC = '{ttl}'"
        )


def _check_storage(values: Mapping[str, Any], problems: list[str]) -> None:
    for name in ("storage_url", "storage_read_url"):
        if values.get(name) and importlib.util.find_spec("minio") is None:
            problems.append(f"{name.upper()} = '{values[name]}': needs minio: pip install 'convertq[s3]'")
