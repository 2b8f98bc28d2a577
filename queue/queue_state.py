"""What can keep every queued job waiting: an open breaker, or that no server is active."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from psycopg.rows import DictRow


def get_queue_state(database: Database, config: Config, gateway: str | None = None) -> DictRow:
    """breaker, by_hand, opened_at and probe_after of the gateway, or of the one that is worst off; gateways,
    active_servers."""
    gateways = [gateway] if gateway else config.gateway_names
    return database.run("get_queue_state", gateways=gateways, heartbeat_timeout=config.worker_heartbeat_timeout_sec)[0]


def is_held(state: Mapping[str, Any]) -> bool:
    return bool(state["breaker"] != "closed")
