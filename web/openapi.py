"""The contract of the API: openapi.yaml, with the values that depend on the installation filled in."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from convertq.queue.config import Config
from convertq.queue.mapping import choose_mapping
from convertq.queue.version import VERSION

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 0.03 s instead of 0.2 s where libyaml is available


def openapi_document(config: Config) -> dict[str, Any]:
    document = read_openapi()
    document["info"]["version"] = VERSION
    upload = document["components"]["schemas"]["Upload"]["properties"]
    upload["file"]["description"] = f"A PDF of at most {config.max_upload_bytes} bytes"
    # A form field that is empty counts as one that is not set.
    upload["mapping"] |= {"enum": [*config.mappings_allowed, ""], "default": choose_mapping(config)}
    document["components"]["parameters"]["Gateway"]["schema"] = {"enum": [*config.gateway_names, ""]}
    return document


def read_openapi() -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(resources.files(__package__).joinpath("openapi.yaml").read_bytes(), LOADER)
    return document
