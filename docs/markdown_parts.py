"""The generated parts of Markdown documents."""

from __future__ import annotations

import logging
import textwrap
from collections import defaultdict
from collections.abc import Iterable

from convertq.cli import exit_code
from convertq.cli.json_keys import DOCUMENTS, MEANINGS, Document
from convertq.queue import errors
from convertq.queue.log.events import EVENTS
from convertq.queue.metrics import METRICS
from convertq.queue.setting import Setting
from convertq.queue.settings import SECTIONS
from convertq.web.http_error import CODES, HttpCode
from convertq.web.openapi import read_openapi

from docs.commands import Command
from docs.commands import commands as all_commands


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def settings() -> str:
    return "\n".join(
        f"### {section}\n\n" + table(("variable", "default", "meaning"), map(_setting, known))
        for section, known in SECTIONS.items()
    )


def _setting(setting: Setting) -> tuple[str, str, str]:
    default = setting.unset if setting.default is None else f"`{setting.default}`"
    return f"`{setting.variable}`", default, setting.about


def overview() -> str:
    rows = [(f"[`{each.usage}`](#{anchor(each)})", each.about) for each in all_commands()]
    return table(("command", "what it does"), rows)


def anchor(command: Command) -> str:
    return f"convertq-{command.name.replace(' ', '-')}"


def commands() -> str:
    return "\n".join(map(_command, all_commands()))


def _command(command: Command) -> str:
    paragraphs = [textwrap.fill(text, 100, break_on_hyphens=False) for text in command.help.split("\n\n")]
    words = [f"### convertq {command.name}\n", "\n\n".join(paragraphs) + "\n"]
    if command.options:
        rows = [(f"`{option.words} {option.value}".rstrip() + "`", option.about) for option in command.options]
        words.append(table((f"`{command.usage}`", ""), rows))
    words.append(f"```\n{command.epilog}\n```\n")
    return "\n".join(words)


def exit_codes() -> str:
    return table(("code", "meaning"), [(f"{int(code)}", text) for code, text in exit_code.MEANINGS.items()])


def json_keys() -> str:
    rows = [(f"`{each.command}`", "lines" if each.lines else "one", _keys(each)) for each in DOCUMENTS]
    meanings = [
        (f"`{command}`,{key}", text) for name, text in MEANINGS.items() for command, _, key in [name.partition(",")]
    ]
    return table(("command", "objects", "keys"), rows) + "\n" + table(("key", "meaning"), meanings)


def _keys(document: Document) -> str:
    inside = document.inside or {}
    names = " ".join(f"{key}{{{', '.join(inside[key])}}}" if key in inside else key for key in document.keys)
    return f"`{names}`" + (f" ({document.remark})" if document.remark else "")


def error_codes() -> str:
    rows = [(f"`{code}`", text, "yes" if code in errors.RETRYABLE else "no") for code, text in errors.MEANINGS.items()]
    return table(("code", "when", "retried"), rows)


def routes() -> str:
    rows = [
        (f"`{method.upper()} {path}`", route["summary"], " ".join(route["responses"]))
        for path, methods in read_openapi()["paths"].items()
        for method, route in methods.items()
    ]
    return table(("route", "what it does", "answers"), rows)


def http_codes() -> str:
    statuses = defaultdict(list)
    for status, code in CODES.items():
        statuses[code].append(str(status))
    statuses[HttpCode.BAD_REQUEST].append("every other status below 500")
    return table(("code", "status"), [(f"`{code}`", ", ".join(found)) for code, found in statuses.items()])


def log_events() -> str:
    rows = [(f"`{event}`", logging.getLevelName(level), text) for event, (level, text) in EVENTS.items()]
    return table(("event", "level", "meaning"), rows)


def metrics() -> str:
    rows = [
        (f"`{name}{{{metric.label}}}`" if metric.label else f"`{name}`", metric.kind, metric.about)
        for name, metric in METRICS.items()
    ]
    return table(("metric", "type", "meaning"), rows)
