"""How one gateway is called: its address, its form and its answers, as one value built from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from convertq.queue.config import Config
from convertq.queue.gateway import Gateway
from convertq.worker.gateway.endpoint import Endpoint, find_endpoint


@dataclass(frozen=True)
class GatewayRoute:
    endpoint: Endpoint = field(repr=False)  # may hold credentials
    gateway: Gateway

    @property
    def timeout_seconds(self) -> float:
        """For a whole call, from the connection to the last byte of the answer."""
        return (self.gateway.timeout_ms or 0) / 1000


def routes_to_gateways(config: Config) -> dict[str, GatewayRoute]:
    """By the name of the gateway. Called once, before the fork: the certificates take most of the memory."""
    return {gateway.name: GatewayRoute(find_endpoint(gateway.url), gateway) for gateway in config.gateways}
