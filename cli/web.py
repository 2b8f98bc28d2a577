"""The command `convertq web run`: the HTTP API and the pages, in the foreground."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import click
from convertq.cli.context import configuration, the_store

NEEDED = {
    "flask": "flask",
    "gevent": "gevent",
    "gunicorn": "gunicorn",
    "multipart": "multipart",
    "psycopg_pool": "psycopg-pool",
}


@click.group()
def web() -> None:
    """The HTTP API and the pages."""


@web.command(
    epilog="""\b
Example:
  convertq web run
  ADMIN_TOKEN=$(openssl rand -hex 32) convertq web run --host 127.0.0.1 --port 8000 --processes 4
"""
)
@click.option("--host", help="Address to listen on, instead of WEB_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of WEB_PORT; 0: any free port.")
@click.option("--processes", type=click.IntRange(1, 100), help="Web processes, instead of WEB_PROCESSES.")
def run(host: str | None, port: int | None, processes: int | None) -> None:
    """Run the HTTP API and the pages until SIGTERM."""
    refuse_without_libraries()
    from convertq.web.gevent_setup import patch_for_gevent

    patch_for_gevent()
    config = configuration()
    config = replace(config, web_host=host or config.web_host, web_processes=processes or config.web_processes)
    the_store().make_ready()
    from convertq.queue.log.lines import set_up_logging
    from convertq.web.server import is_activated, listen, serve

    set_up_logging(config)
    if is_activated():
        serve(config, None, lambda: click.echo("listening on the socket of systemd"))
        return
    wanted = config.web_port if port is None else port
    try:
        listener = listen(config.web_host, wanted)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {config.web_host}:{wanted}: {reason_of(error)}") from error
    address = url_of(listener.getsockname())
    serve(config, listener, lambda: click.echo(f"listening on {address}"))


def reason_of(error: OSError) -> str:
    """The message without the address that Python adds to it. The error for an unknown host has no errno."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else error.strerror or str(error)).lower()


def url_of(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def refuse_without_libraries() -> None:
    for module, package in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            raise click.ClickException(f"web needs {package}: pip install 'convertq[web]'")
