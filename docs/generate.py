"""Writes the generated parts of the documents: `make docs`, or `python -m docs.generate`.

A generated part stands between two marked lines: one with `generated: NAME`, one with `end: NAME`. Everything else in
a document is written by hand. tests/unit/test_documents.py fails when a part is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import results
from bench.scenes import SCENES
from docs import env_example, man_parts, markdown_parts

ROOT = Path(__file__).parents[1]
Part = Callable[[], str]
PARTS: dict[str, dict[str, Part]] = {
    "docs/configuration.md": {"settings": markdown_parts.settings},
    "docs/commands.md": {
        "overview": markdown_parts.overview,
        "commands": markdown_parts.commands,
        "exit codes": markdown_parts.exit_codes,
        "JSON keys": markdown_parts.json_keys,
        "error codes": markdown_parts.error_codes,
    },
    results.DOCUMENT: {f"bench {scene}": partial(results.read, scene) for scene in SCENES},
    "docs/http-api.md": {"routes": markdown_parts.routes, "codes": markdown_parts.http_codes},
    "docs/operations.md": {"log events": markdown_parts.log_events},
    "monitoring/README.md": {"metrics": markdown_parts.metrics},
    "man/convertq.1": {
        "commands": man_parts.commands,
        "environment": man_parts.environment,
        "exit status": man_parts.exit_status,
    },
    "systemd/convertq.env.example": {"settings": env_example.settings},
}


def generated(document: str) -> str:
    """The text of the document with every generated part made again."""
    text = (ROOT / document).read_text()
    for name, part in PARTS[document].items():
        between = rf"(?<= generated: {name})([^\n]*\n).*?(?=^[^\n]* end: {name}\b)"
        found = re.search(between, text, re.DOTALL | re.MULTILINE)
        if not found:
            raise ValueError(f"{document} has no lines with `generated: {name}` and `end: {name}`")
        text = text[: found.start()] + found[1] + part() + text[found.end() :]
    return text


def main() -> None:
    for document in PARTS:
        (ROOT / document).write_text(generated(document))


if __name__ == "__main__":
    main()
