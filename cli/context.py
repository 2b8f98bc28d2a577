"""What every command shares: the configuration, the connection, job ids as arguments, and JSON as output."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
from convertq.cli.table import hang, terminal_width

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from convertq.worker.config import Config
    from convertq.worker.db import Database
    from convertq.worker.files import Files

APPLICATION_NAME = "convertq:cli"
Command = TypeVar("Command", bound=Callable[..., Any])


@lru_cache(maxsize=2)
def configuration(*, needs_gateway: bool = False) -> Config:
    """Raises ConfigError."""
    from convertq.worker.config import read_config

    return read_config(os.environ, needs_gateway=needs_gateway)


@contextmanager
def open_database() -> Iterator[Database]:
    """A database whose schema fits; raises psycopg.OperationalError or SchemaError."""
    from convertq.worker.db import Database

    database = Database.open(configuration().database, APPLICATION_NAME)
    try:
        yield database
    finally:
        database.close()


def the_files() -> Files:
    from convertq.worker.files import Files

    config = configuration()
    return Files(config.uploads_dir, config.results_dir)


def make_directories() -> None:
    """One that cannot be made is a wrong setting, not a passing trouble: raises ConfigError."""
    from convertq.worker.config import ConfigError

    config = configuration()
    for variable, directory in (("UPLOADS_DIR", config.uploads_dir), ("RESULTS_DIR", config.results_dir)):
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError([f"{variable} = {str(directory)!r}: the directory cannot be made: {reason}"]) from None


class JobId(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, which is not required
    """Any is accepted; a shell offers those in this status."""

    name = "id"

    def __init__(self, offers: str | None = None) -> None:
        self._offers = offers

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> UUID:
        if isinstance(value, UUID):
            return value
        try:
            return UUID(value)
        except ValueError:
            self.fail(f"{value!r} is not a job id: an id looks like {UUID(int=0)}", parameter, context)

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from convertq.cli.completion import complete_job_id

        return complete_job_id(incomplete, self._offers)


JOB_ID = JobId()
FAILED_JOB_ID, COMPLETE_JOB_ID = JobId("failed"), JobId("complete")


class NearChoice(click.Choice):  # type: ignore[type-arg]  # as above
    """One of a few words; a slip of the finger is answered with what was meant. Codes are written large everywhere."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        for choice in self.choices:
            if str(value).lower() == str(choice).lower():
                return choice
        close = difflib.get_close_matches(str(value).lower(), [str(choice).lower() for choice in self.choices], n=1)
        meant = next((f": did you mean {choice}?" for choice in self.choices if str(choice).lower() in close), "")
        names = ", ".join(map(str, self.choices))
        return self.fail(f"{str(value)!r} is not one of {names}{meant}", parameter, context)


def json_option(command: Command) -> Command:
    """`--json`, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(document: Any) -> None:
    """One document on one line; for a list of things see print_json_lines."""
    click.echo(json.dumps(document, default=_plain))


def print_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        print_json(row)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def complain(line: str) -> None:
    """One line on stderr about one of several things; the command goes on. On a terminal no word is torn apart."""
    for piece in hang(line, 2, terminal_width(sys.stderr)):
        click.echo(piece, err=True)
