"""What the failover tests share: the store, and the table that they print at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.failover.report import Report
from tests.lifecycle.conftest import documents

__all__ = ["documents"]


@pytest.fixture(autouse=True)
def store_credentials(test_store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process submits and audits, and finds the credentials of S3 as every other one does."""
    for name, value in test_store.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    made = Report()
    yield made
    print(f"\n\n{made.table()}\n")
