"""The command `convertq worker run`: the supervisor, in the foreground."""

from __future__ import annotations

import faulthandler
import sys
from dataclasses import replace

import click
from convertq.cli.context import configuration, make_directories


@click.group()
def worker() -> None:
    """Run the worker pool."""


@worker.command(
    epilog="""\b
Example:
  DATABASE_URL=postgresql://user:password@host/database GATEWAY_URL=http://host:8002 convertq worker run
  convertq worker run --concurrency 8
"""
)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Worker processes, instead of WORKER_CONCURRENCY.")
def run(concurrency: int | None) -> None:
    """Run the supervisor and its workers until SIGTERM."""
    config = configuration(needs_gateway=True)
    if concurrency:
        config = replace(config, worker_concurrency=concurrency)
    make_directories()
    from convertq.worker.log import set_up_logging
    from convertq.worker.supervisor import Supervisor

    set_up_logging(config)
    faulthandler.enable()  # SIGABRT is how a watchdog ends a process: it says where it hung
    sys.exit(Supervisor(config).run())
