"""The ways in which every host loses its database at once, and gets it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.network import Network
from tests.postgres_processes import freeze, thaw


@dataclass(frozen=True)
class Way:
    begin: Callable[[EmbeddedPostgres, Network], object]
    end: Callable[[EmbeddedPostgres, Network], object]


WAYS = {
    # The server's processes are gone: connections are refused, and everybody's session has ended.
    "stopped": Way(lambda postgres, network: postgres.stop(), lambda postgres, network: postgres.start()),
    # A hung machine: connections are accepted by the kernel and answered by nobody; later the server goes on with
    # what had arrived, for clients that are no longer there.
    "frozen": Way(lambda postgres, network: freeze(postgres), lambda postgres, network: thaw(postgres)),
    # The server works on, and hears of nobody.
    "cut off": Way(
        lambda postgres, network: network.set_mode("swallow"), lambda postgres, network: network.set_mode("pass")
    ),
}
