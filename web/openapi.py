"""The contract of the API, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any


def document() -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "convertq", "version": "0.1.0"}, "paths": {}}
