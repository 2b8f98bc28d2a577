"""What the failover tests share: the table that they print at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.failover.report import Report
from tests.lifecycle.conftest import documents

__all__ = ["documents"]


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    made = Report()
    yield made
    print(f"\n\n{made.table()}\n")
