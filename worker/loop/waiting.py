"""The sixth step: waiting for a wake-up or the next poll, and probing the gateway while the breaker is open."""

from __future__ import annotations

import time
from collections.abc import Mapping

from convertq.queue.breaker import PROBE_TIMEOUT_SECONDS, Breaker
from convertq.queue.claim import Claim
from convertq.queue.config import STUCK_AFTER_SECONDS, Config
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.loop.queue_connection import QueueConnection
from convertq.worker.loop.stopping import Stopping
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.wake_up import WakeUp


class Waiting:
    def __init__(
        self, config: Config, slot: WorkerSlot, connection: QueueConnection, breaker: Breaker,
        gateways: Mapping[str, GatewayClient], stopping: Stopping, wake_up: WakeUp,
    ) -> None:  # fmt: skip
        self._config, self._slot, self._connection, self._breaker = config, slot, connection, breaker
        self._gateways, self._stopping, self._wake_up = gateways, stopping, wake_up

    def wait(self, claim: Claim | None) -> bool:
        """Returns whether a wake-up ended the wait. `claim` found no job; None: this host must not claim."""
        self._slot.show_ready()
        if claim is not None and claim.state.probe_is_due and self.probe(claim.route):
            return False  # this worker may now claim the trial
        poll_at = time.monotonic() + self._config.worker_poll_interval_ms / 1000
        while not self._stopping and time.monotonic() < poll_at:
            self._wait_until(poll_at, may_claim=claim is not None)
            if self._wake_up.take():  # if not, another idle worker was quicker
                return True
        return False

    def _wait_until(self, poll_at: float, *, may_claim: bool) -> None:
        """The row shows "idle" only while a claim is sure to follow, and no longer when the wake-up is taken. So the
        supervisor always knows whether a wake-up that it posts, or has posted, leads to a claim."""
        if may_claim:
            self._slot.show_idle()
            if not self._slot.table.is_waiting:
                self._slot.table.supervisor_wake_up.post()
        else:
            self._slot.show_ready()
        self._stopping.pause_with_others(poll_at - time.monotonic(), self._wake_up.descriptor)
        self._slot.show_ready()

    def probe(self, gateway: str) -> bool:
        """Whether this worker may now claim the trial."""
        self._slot.show_probing(time.monotonic() + STUCK_AFTER_SECONDS)
        database = self._connection.queue.database
        try:
            client = self._gateways[gateway]
            return self._breaker.probe(
                database, gateway, self._slot.holder, lambda: client.is_healthy(PROBE_TIMEOUT_SECONDS)
            )
        except DATABASE_ERRORS as error:
            if not self._connection.database.survives(error):
                self._connection.database.drop(error)
            return False
        finally:
            self._slot.show_ready()
