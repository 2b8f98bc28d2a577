"""Every word that convertq sends to PostgreSQL, as files: finds them, reads them, and names the schema in them."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

SUPPORTS_CODE_FROM = re.compile(r"-- supports code from:(.*)")
OUTSIDE_A_TRANSACTION = "-- outside a transaction"


@dataclass(frozen=True)
class Migration:
    """One file. Its first comment lines may declare how it is applied: see CONTRIBUTING.md."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def supports_code_from(self) -> int:
        """The oldest code that works with this migration, as the version of the newest migration that it has."""
        declared = [match[1].strip() for line in self._header if (match := SUPPORTS_CODE_FROM.fullmatch(line))]
        if not declared:
            return self.version
        if not (declared[-1].isdecimal() and 1 <= int(declared[-1]) <= self.version):
            raise ValueError(f"migration {self.version} must support code from 1 to {self.version}: {declared[-1]!r}")
        return int(declared[-1])

    @property
    def runs_outside(self) -> bool:
        """Whether its statements are sent one by one, and again after a crash, such as CREATE INDEX CONCURRENTLY."""
        return OUTSIDE_A_TRANSACTION in self._header

    @property
    def statements(self) -> list[str]:
        """The statements of a migration that runs outside a transaction; each ends with a semicolon and the line."""
        code = "\n".join(line for line in self.text.splitlines() if not line.lstrip().startswith("--"))
        return [statement for each in re.split(r";\s*(?:\n|$)", code) if (statement := each.strip())]

    @property
    def _header(self) -> list[str]:
        return [
            line.rstrip() for line in itertools.takewhile(lambda line: line.startswith("--"), self.text.splitlines())
        ]


@lru_cache(maxsize=256)
def query(name: str, schema: str) -> bytes:
    """The statement in queries/<name>.sql, with its tables in `schema`."""
    text = (files(__name__) / "queries" / f"{name}.sql").read_text("utf-8")
    return in_schema(text.replace("{claim_order}", claim_order()), schema).encode()


@lru_cache(maxsize=1)
def claim_order() -> str:
    """The expressions of claim_order.sql, which more than one query and one index share."""
    lines = (files(__name__) / "claim_order.sql").read_text("utf-8").splitlines()
    return " ".join(line for line in lines if not line.startswith("--"))


def begin_behind_pooler(lock_timeout_ms: int, idle_timeout_ms: int) -> list[bytes]:
    """The commands of begin_behind_pooler.sql."""
    text = (files(__name__) / "begin_behind_pooler.sql").read_text("utf-8")
    commands = text.format(lock_timeout_ms=lock_timeout_ms, idle_timeout_ms=idle_timeout_ms).splitlines()
    return [command.rstrip(";").encode() for command in commands if not command.startswith("--")]


@lru_cache(maxsize=1)
def migrations() -> tuple[Migration, ...]:
    found = [entry for entry in (files(__name__) / "migrations").iterdir() if entry.name.endswith(".sql")]
    return tuple(
        Migration(int(entry.name[:4]), entry.name[5:-4], entry.read_text("utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    )


def in_schema(text: str, schema: str) -> str:
    """Qualified names need no search_path, which a transaction pooler would lose or hand to another client."""
    return text.replace("{schema}", f'"{schema}"')
