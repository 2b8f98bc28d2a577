"""What the chaos tests take from the lifecycle tests."""

from tests.lifecycle.conftest import documents

__all__ = ["documents"]
