"""The command `convertq up`: everything on one machine, in the foreground, with its data kept."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from convertq.cli.exit_code import ExitCode, Stop

if TYPE_CHECKING:
    from convertq.embedded.data_directory import DataDirectory
    from convertq.embedded.local_stack import LocalStack
    from convertq.queue.config import Config

#: What the commands of a second terminal need, unless it was given.
SHOWN = ("DATABASE_URL", "GATEWAY_URL", "MAPPINGS_ALLOWED", "UPLOADS_DIR", "RESULTS_DIR")


@click.command(
    epilog="""\b
Example:
  convertq up
  convertq up --data /srv/convertq
  WEB_PORT=9000 GATEWAY_URL=http://gateway.example:8002 convertq up
"""
)
@click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Where database, uploads and results are kept. Default: $XDG_DATA_HOME/convertq.",
)  # fmt: skip
def up(data: Path | None) -> None:
    """Run everything on this machine until Ctrl-C: database, gateway, workers and web.

    PostgreSQL is embedded unless DATABASE_URL is set, and the reference gateway runs unless GATEWAY_URL or
    GATEWAYS_FILE is set. All other settings work as for `worker run` and `web run`. Five minutes after the start and
    then once a day, `convertq cleanup` runs. The next `convertq up` continues where this one stopped, also after a
    crash.
    """
    from convertq.cli.local_stack import names_gateway, refuse_without_extra
    from convertq.embedded.binaries import EmbeddedError
    from convertq.embedded.data_directory import DataDirectory, default_path
    from convertq.embedded.local_stack import LocalStack

    is_embedded = not os.environ.get("DATABASE_URL")
    refuse_without_extra(
        "convertq up", needs_web=True, needs_database=is_embedded, needs_gateway=not names_gateway(os.environ)
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until it is up, SIGTERM ends it as Ctrl-C does
    try:
        directory = DataDirectory(data or default_path(os.environ))
        given = {name: value for name, value in os.environ.items() if value}
        with LocalStack({**directory.settings(), **given}) as stack:
            run(stack, directory, given)
    except EmbeddedError as error:
        raise Stop(ExitCode.FAILED, str(error)) from None


def run(stack: LocalStack, directory: DataDirectory, given: Mapping[str, str]) -> None:
    from convertq.cli.context import complain, configuration
    from convertq.cli.local_stack import prepare_database, start_gateway
    from convertq.embedded.local_stack import STOP
    from convertq.embedded.postgres import DURABLE, EmbeddedPostgres
    from convertq.queue.config import read_config
    from convertq.queue.signals import Signals

    click.echo(f"starting, with the data in {directory.path} …")
    postgres = None if "DATABASE_URL" in given else EmbeddedPostgres(settings=DURABLE, kept=directory.database)
    url = {"DATABASE_URL": postgres.url()} if postgres else {}
    refuse_taken_port(read_config(stack.environment | url))
    if postgres:
        stack.start_database(postgres)
    start_gateway(stack)
    prepare_database(stack, is_embedded=postgres is not None)
    stack.start_worker()
    show_addresses(stack, directory, given, stack.start_web())
    stack.repeat_cleanup(complain)
    signals = Signals((*STOP, signal.SIGCHLD))
    stack.wait(signals)
    config = configuration()
    click.echo(f"stopping: jobs have {config.worker_shutdown_grace_sec} s to finish; Ctrl-C again requeues them")
    stack.drain(config, signals)


def refuse_taken_port(config: Config) -> None:
    """Before anything is started. Should another program take the port later, the web server reports it."""
    from convertq.cli.web import reason_of

    host, port = config.web_host, config.web_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        remedy = f"stop the program that uses it, or choose another port: WEB_PORT={port + 1} convertq up"
        raise Stop(ExitCode.FAILED, f"cannot listen on {host}:{port}: {reason_of(error)}; {remedy}") from None


def show_addresses(stack: LocalStack, directory: DataDirectory, given: Mapping[str, str], address: str) -> None:
    from convertq.cli.local_stack import export_line

    token = "ADMIN_TOKEN" if "ADMIN_TOKEN" in given else f"the token in {directory.token_file}"
    click.echo(f"\n{address}/        drop PDF files there")
    click.echo(f"{address}/admin   with {token}")
    click.echo("\nIn a second terminal:\n")
    click.echo(export_line(stack.environment, [name for name in SHOWN if name not in given]))
    click.echo("convertq list; convertq top\n")
