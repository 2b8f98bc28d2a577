"""How one gateway is called: its address, its form and its answers, as one value built from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from convertq.queue.config import Config
from convertq.worker.gateway.endpoint import Endpoint, find_endpoint

#: Form fields by name. A value may name an option of the job in braces.
DEFAULT_FIELDS: Mapping[str, str] = MappingProxyType({"mapping": "{mapping}", "pretty": "{pretty}"})


@dataclass(frozen=True)
class GatewayRoute:
    endpoint: Endpoint = field(repr=False)  # may hold credentials
    timeout_seconds: float  # for a whole call, from the connection to the last byte of the answer
    health_path: str
    path: str = "/process"
    file_field: str = "file"
    fields: Mapping[str, str] = field(default_factory=lambda: DEFAULT_FIELDS)
    accept: str = "application/xml"


def route_to_gateway(config: Config) -> GatewayRoute:
    """Called once, before the fork: the certificates take most of the memory that a route needs."""
    return GatewayRoute(find_endpoint(config.gateway_url), config.gateway_timeout_ms / 1000, config.gateway_health_path)
