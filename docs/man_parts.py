"""The generated parts of man/convertq.1, in the macros of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from convertq.cli.exit_code import MEANINGS
from convertq.queue.setting import Setting
from convertq.queue.settings import SETTINGS

from docs.commands import Command, Option
from docs.commands import commands as all_commands

#: groff -Tascii knows ASCII alone
PLAIN = str.maketrans({"×": "x", "…": "...", "\\": r"\e", "-": r"\-"})


def entries(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n.B {name}\n{text}\n" for name, text in rows)


def prose(markdown: str) -> str:
    """What is code in Markdown is bold here; a line never begins with a roff request."""
    text = re.sub(r"`([^`]*)`", r"@B\1@R", " ".join(markdown.split())).translate(PLAIN)
    text = text.replace("@B", r"\fB").replace("@R", r"\fR")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def commands() -> str:
    return entries((_synopsis(command), prose(command.help)) for command in all_commands())


def _synopsis(command: Command) -> str:
    arguments = f" \\fI{command.arguments.translate(PLAIN)}\\fR" if command.arguments else ""
    return f"{command.name}\\fR{arguments}{''.join(map(_option, command.options))}"


def _option(option: Option) -> str:
    word = option.words.split(", ")[-1].translate(PLAIN)
    value = f" \\fI{option.value.translate(PLAIN)}\\fR" if option.value else ""
    return f" [\\fB{word}\\fR{value}]{'...' if option.repeatable else ''}"


def environment() -> str:
    return entries((setting.variable, prose(f"{setting.about} {_default(setting)}")) for setting in SETTINGS)


def _default(setting: Setting) -> str:
    if setting.default is not None:
        return f"Default: `{setting.default}`."
    required = setting.unset.startswith("required")
    return f"{setting.unset.capitalize()}." if required else f"Without it: {setting.unset}."


def exit_status() -> str:
    return entries((f"{int(code)}", prose(text)) for code, text in MEANINGS.items())
