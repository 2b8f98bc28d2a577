"""Every word that convertq sends to PostgreSQL, as files: finds them, reads them, and names the schema in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@lru_cache(maxsize=256)
def query(name: str, schema: str) -> bytes:
    """The statement in queries/<name>.sql, with its tables in `schema`."""
    return in_schema((files(__name__) / "queries" / f"{name}.sql").read_text("utf-8"), schema).encode()


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
