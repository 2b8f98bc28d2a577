"""What click knows of each command, in the order of `convertq --help`: its words, options, help and examples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import click
from convertq.cli.main import COMMANDS, convertq


@dataclass(frozen=True)
class Option:
    words: str  # such as "-o, --output"
    value: str  # such as "PATH"; empty for a flag
    about: str
    repeatable: bool


@dataclass(frozen=True)
class Command:
    name: str  # such as "worker run"
    arguments: str  # such as "FILE..."
    about: str  # the one line of `convertq --help`
    help: str
    options: tuple[Option, ...]
    epilog: str

    @property
    def usage(self) -> str:
        return f"convertq {self.name} {self.arguments}".rstrip()


def commands() -> Iterator[Command]:
    context = convertq.make_context("convertq", [], resilient_parsing=True)
    for name, (_, about) in COMMANDS.items():
        command = convertq.get_command(context, name)
        assert command
        if isinstance(command, click.Group):
            for inner, each in command.commands.items():
                yield _described(f"{name} {inner}", each, about.replace(f" ({name} {inner})", ""))
        else:
            yield _described(name, command, about)


def _described(name: str, command: click.Command, about: str) -> Command:
    options = tuple(_option(each) for each in command.params if isinstance(each, click.Option))
    arguments = " ".join(_argument(each) for each in command.params if isinstance(each, click.Argument))
    epilog = inspect.cleandoc((command.epilog or "").replace("\b", ""))
    return Command(name, arguments, about, inspect.cleandoc(command.help or ""), options, epilog)


def _argument(argument: click.Argument) -> str:
    word = argument.metavar or _choices(argument.type) or (argument.name or "").upper()
    word = word.strip("[]")
    repeated = f"{word}..." if argument.nargs == -1 and not word.endswith("...") else word
    return repeated if argument.required else f"[{repeated}]"


def _option(option: click.Option) -> Option:
    words = ", ".join(option.opts) + "".join(f" / {word}" for word in option.secondary_opts)
    value = "" if option.is_flag else option.metavar or _choices(option.type) or option.type.name.split()[0].upper()
    about = " ".join((option.help or "").split())
    if option.show_default and not option.is_flag:
        about += f" Default: {option.default}."
    return Option(words, value, about, option.multiple)


def _choices(kind: object) -> str:
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else ""
