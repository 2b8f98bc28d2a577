"""The storm's object storage (CHAOS_STORE=s3): a real server behind a proxy, which is killed, frozen and cut."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

from convertq.embedded.s3 import EmbeddedS3
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.retention import Retention
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store import open_store, protocol
from convertq.queue.store.s3_bucket import Bucket

from tests.chaos.plan import Kind
from tests.tcp_proxy import TcpProxy
from tests.waiting import Row

URL = StorageUrl("convertq-chaos", "storm/")


class ChaosStorage:
    def __init__(self, server: EmbeddedS3, proxy: TcpProxy) -> None:
        self._server, self._proxy = server, proxy
        self.bucket = Bucket(server.client(URL))
        self._is_away = False
        self.environment = {
            **server.environment, "STORAGE_URL": str(URL), "S3_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        }  # fmt: skip

    def begin(self, kind: Kind) -> Callable[[], None] | None:
        """None while another fault has taken the storage away."""
        if self._is_away:
            return None
        self._is_away = True
        match kind:
            case Kind.KILL_STORAGE:
                self._server.stop()
                return self._undo(self._server.start)
            case Kind.FREEZE_STORAGE:
                self._server.send(signal.SIGSTOP)
                return self._undo(lambda: self._server.send(signal.SIGCONT))
            case _:
                self._proxy.refuse()
                return self._undo(self._proxy.listen)

    def _undo(self, undo: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            undo()
            self._is_away = False

        return act

    # -- the audit --

    def unlisted_objects(self, jobs: Mapping[UUID, Row]) -> list[str]:
        """Objects that no row names."""
        named = {row[column] for row in jobs.values() for column in ("upload_path", "result_path")}
        found = [URL.location_of(each.key) for each in self.bucket.list_objects(URL.prefix)]
        return [location for location in found if location not in named]

    def clean_up(self, config: Config) -> None:
        """As `convertq cleanup` a day later."""
        kept = protocol.ORPHAN_AGE_SECONDS
        protocol.ORPHAN_AGE_SECONDS = -10.0
        database = Database.open(config.database, "observer")
        try:
            for _ in Retention(database, open_store(config), config).run():
                pass
        finally:
            database.close()
            protocol.ORPHAN_AGE_SECONDS = kept


@contextlib.contextmanager
def chaos_storage() -> Iterator[ChaosStorage]:
    """Its credentials are in the environment of this process while it runs, for the client and the audit."""
    with EmbeddedS3() as server, TcpProxy(server.port) as proxy:
        server.make_bucket(URL.bucket)
        before = {name: os.environ.get(name) for name in server.environment}
        os.environ.update(server.environment)
        try:
            yield ChaosStorage(server, proxy)
        finally:
            with contextlib.suppress(ProcessLookupError, AssertionError):
                server.send(signal.SIGCONT)
            for name, value in before.items():
                os.environ.pop(name, None)
                os.environ.update({name: value} if value is not None else {})
