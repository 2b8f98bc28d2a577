"""How many workers a supervisor runs: a fixed number, or a range within which its pool grows and shrinks."""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_WORKERS = 1000


class PoolSize(NamedTuple):
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.is_elastic else str(self.least)

    @property
    def is_elastic(self) -> bool:
        return self.least < self.most


def read_pool_size(text: str) -> PoolSize:
    """Raises ValueError with what is allowed."""
    found = re.fullmatch(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?", text.strip())
    size = PoolSize(int(found[1]), int(found[2] or found[1])) if found else PoolSize(0, 0)
    if not 1 <= size.least <= size.most <= MOST_WORKERS:
        raise ValueError(f"must be a whole number from 1 to {MOST_WORKERS}, or a range such as 2..16")
    return size
