"""What every command uses: the configuration, the connection, job ids as arguments, and JSON as output."""

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
from convertq.queue.status import ACTIVE, JobStatus

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from convertq.queue.config import Config
    from convertq.queue.database.database import Database
    from convertq.queue.store.protocol import Store

APPLICATION_NAME = "convertq:cli"
Command = TypeVar("Command", bound=Callable[..., Any])


@lru_cache(maxsize=2)
def configuration(*, needs_gateway: bool = False) -> Config:
    """Raises ConfigError."""
    from convertq.queue.config import read_config

    return read_config(os.environ, needs_gateway=needs_gateway)


@contextmanager
def open_database() -> Iterator[Database]:
    """A database whose schema fits; raises psycopg.OperationalError or SchemaError."""
    from convertq.queue.database.database import Database

    database = Database.open(configuration().database, APPLICATION_NAME, reopens=True)
    try:
        yield database
    finally:
        database.close()


def the_store() -> Store:
    from convertq.queue.store import open_store

    return open_store(configuration())


class JobId(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, which is not required
    """Any id is accepted; a shell completes those of jobs in these statuses."""

    name = "id"

    def __init__(self, *offers: str) -> None:
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
COMPLETE_JOB_ID, ACTIVE_JOB_ID = JobId(JobStatus.COMPLETE), JobId(*ACTIVE)
RETRYABLE_JOB_ID = JobId(JobStatus.FAILED, JobStatus.CANCELLED)


class NearChoice(click.Choice):  # type: ignore[type-arg]  # as above
    """One of a few words. A typing error is answered with the closest word; upper and lower case are equal."""

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
    """One line on stderr about one of several items; the command continues. On a terminal it wraps between words."""
    for piece in hang(line, 2, terminal_width(sys.stderr)):
        click.echo(piece, err=True)


def require_known_gateway(name: str | None) -> None:
    """For the option --gateway: exit code 2 unless the configuration names this gateway."""
    from convertq.queue.gateway import UnknownGateway, require_gateway

    try:
        require_gateway(name, configuration().gateway_names)
    except UnknownGateway as error:
        raise click.BadParameter(str(error), param_hint="--gateway") from None
