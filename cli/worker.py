"""The command `convertq worker run`: the supervisor, in the foreground."""

from __future__ import annotations

import faulthandler
import sys
from dataclasses import replace

import click
from convertq.cli.context import configuration, the_store


@click.group()
def worker() -> None:
    """Run the worker pool."""


@worker.command(
    epilog="""\b
Example:
  convertq worker run
  convertq worker run --concurrency 8
"""
)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Worker processes, instead of WORKER_CONCURRENCY.")
def run(concurrency: int | None) -> None:
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
