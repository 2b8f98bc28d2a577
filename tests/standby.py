"""A real standby in tests: a copy of another embedded server that follows it and answers readers."""

from __future__ import annotations

from collections.abc import Mapping

from convertq.embedded.postgres import FAST, EmbeddedPostgres


class Standby(EmbeddedPostgres):
    """`with Standby(primary, settings={…})`: follows `primary`; with a slot's name, through that slot."""

    def __init__(
        self, primary: EmbeddedPostgres, *, settings: Mapping[str, str] = FAST, slot: str = "", port: int | None = None
    ) -> None:
        super().__init__(settings=settings, port=port)
        self._primary, self._slot = primary, slot

    def _initialise(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        through = ["--slot", self._slot] if self._slot else []
        copy = ["-d", self._primary.url(), "-D", str(self._data), "--checkpoint=fast", "--no-sync"]
        self._binaries.run(self._folder.path, "pg_basebackup", *copy, "--write-recovery-conf", *through)

    def promote(self) -> None:
        """Returns when it accepts writes."""
        self._binaries.run(self._folder.path, "pg_ctl", "promote", "-D", str(self._data), "-w", "-t", "60")


class DemotedPostgres(EmbeddedPostgres):
    """A server that becomes a standby of nobody, which answers readers only, until it is promoted."""

    def demote(self) -> None:
        self.stop()
        signal_file = self._data / "standby.signal"
        signal_file.touch()
        signal_file.chmod(0o666)  # the server opens it for writing, perhaps as another user
        self.start()
