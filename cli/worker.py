"""The command `convertq worker run`: the supervisor, in the foreground."""

from __future__ import annotations

import faulthandler
import sys
from dataclasses import replace

import click
from convertq.cli.context import configuration, the_store
from convertq.queue.pool_size import PoolSize, read_pool_size


def read_concurrency(_context: click.Context, _option: click.Parameter, text: str | None) -> PoolSize | None:
    try:
        return None if text is None else read_pool_size(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


@click.group()
def worker() -> None:
    """Run the worker pool."""


@worker.command(
    epilog="""\b
Example:
  convertq worker run
  convertq worker run --concurrency 8
  convertq worker run --concurrency 2..16
"""
)
@click.option(
    "--concurrency",
    metavar="N|A..B",
    callback=read_concurrency,
    help="Worker processes, as WORKER_CONCURRENCY, which it overrides.",
)
def run(concurrency: PoolSize | None) -> None:
    """Run the supervisor and its workers until SIGTERM."""
    config = configuration(needs_gateway=True)
    if concurrency:
        config = replace(config, worker_concurrency=concurrency)
    store = the_store()
    store.make_ready()
    store.prepare_workers()
    from convertq.queue.log.lines import set_up_logging
    from convertq.worker.supervisor.supervisor import Supervisor

    set_up_logging(config)
    faulthandler.enable()  # systemd's watchdog sends SIGABRT: the traceback shows where the process hung
    sys.exit(Supervisor(config).run())
