"""The connection to the gateway: kept from job to job, and ended from another thread when a call must end."""

from __future__ import annotations

from functools import partial

from convertq.queue.http_connection import KeptConnection
from convertq.worker.gateway.endpoint import Endpoint

#: A connection is kept for the job that follows at once. Gateways close idle ones after some seconds, and a request
#: that meets the close on its way costs the job an attempt: so none is ever that old.
KEEP_SECONDS = 1.0


class GatewayConnection(KeptConnection):
    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        super().__init__(partial(endpoint.connect, timeout_seconds), KEEP_SECONDS)
