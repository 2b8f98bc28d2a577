"""The command `convertq gateway run`: the reference gateway in the foreground."""

from __future__ import annotations

import importlib.util
import logging
import signal
from typing import Any

import click

NEEDED = ("pypdfium2", "multipart")


@click.group()
def gateway() -> None:
    """The built-in reference gateway."""


def check_fault(context: click.Context, option: click.Parameter, rules: tuple[str, ...]) -> tuple[str, ...]:
    from convertq.gateway.faults import parse_rule

    for rule in rules:
        try:
            parse_rule(rule)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return rules


@gateway.command(
    epilog="""\b
Faults, as KIND[:ARG][@first=N][@sha256=PREFIX][@share=0..1]:
  fail[:STATUS]   answer with this status (500)
  delay:SECONDS   wait before converting
  drip[:BYTES]    send so many bytes a second (1)
  truncate        announce the whole answer, send half of it
  reset           reset the connection without an answer
  @first=N        only the first N requests of each X-Correlation-ID
  @sha256=PREFIX  only the document whose SHA-256 begins like this
  @share=0.2      only every fifth request, by chance

\b
Example:
  convertq gateway run --port 8002
  convertq gateway run --port 0 --fault fail:502@first=1@sha256=3f2a
"""
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8002, show_default=True, help="0: any free port.")
@click.option("--max-bytes", type=click.IntRange(1), default=52_428_800, show_default=True, help="Largest upload.")
@click.option("--converters", type=click.IntRange(1, 64), default=4, show_default=True, help="Processes that convert.")
@click.option("--time-limit", type=click.FloatRange(0.01), default=120, show_default=True, help="Seconds per document.")
@click.option("--fault", multiple=True, callback=check_fault, help="Inject a fault; may be repeated (see below).")
@click.option("--allow-fault-header", is_flag=True, help="Allow a request to name a fault in its X-Fault header.")
def run(host: str, port: int, time_limit: float, fault: tuple[str, ...], **options: Any) -> None:
    """Run the reference gateway until SIGTERM."""
    refuse_without_libraries()
    from convertq.gateway.server import Gateway

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # Blocked before any thread starts, so that the signal waits for sigwait and interrupts nothing.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        service = Gateway(host, port, faults=fault, seconds=time_limit, **options)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    with service:
        click.echo(f"listening on {service.url}")
        signal.sigwait(signals)


def refuse_without_libraries() -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise click.ClickException(f"gateway needs {name}: pip install 'convertq[gateway]'")
