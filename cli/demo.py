"""The command `convertq demo`: converts sample invoices, on a stack that needs no installation."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click
from convertq.queue.status import JobStatus

if TYPE_CHECKING:
    from convertq.embedded.demo_stack import Stack
    from convertq.queue.config import Config
    from convertq.queue.database.database import Database
    from rich.console import Console

TIMEOUT_SECONDS = 60  # it takes about five
NEEDED = {"rich": "rich", "pypdfium2": "pypdfium2", "multipart": "multipart"}
NEEDED_TO_KEEP = {"flask": "flask", "gunicorn": "gunicorn", "psycopg_pool": "psycopg-pool"}
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
STORAGE_VARIABLES = ("STORAGE_URL", "S3_ENDPOINT_URL", *CREDENTIALS)
NEEDED_ON_S3 = {"minio": "minio"}


@click.command(
    epilog="""\b
Example:
  convertq demo
  convertq demo --keep        # and use the stack from a browser and a second terminal
  convertq demo --s3          # with an embedded S3 server instead of directories
"""
)
@click.option("--keep", is_flag=True, help="Keep everything running, with the pages, until Ctrl-C.")
@click.option("--s3", "on_s3", is_flag=True, help="Keep the files in an embedded S3 server.")
def demo(keep: bool, on_s3: bool) -> int:
    """Convert sample invoices with an embedded PostgreSQL and the reference gateway."""
    needed = NEEDED | (NEEDED_TO_KEEP if keep else {}) | (NEEDED_ON_S3 if on_s3 else {})
    for module, package in needed.items():
        if importlib.util.find_spec(module) is None:
            raise click.ClickException(f"the demo needs {package}: pip install 'convertq[demo]'")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the demo as Ctrl-C does
    from convertq.embedded.binaries import EmbeddedError
    from convertq.embedded.demo_stack import Stack
    from rich.console import Console

    console = Console(highlight=False)
    try:
        return _run(Stack(on_s3=on_s3), console, keep)
    except EmbeddedError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def _run(stack: Stack, console: Console, keep: bool) -> int:
    from convertq.cli.context import APPLICATION_NAME
    from convertq.cli.demo_view import table, watch
    from convertq.queue.database.database import Database

    storage = ", an S3 server" if stack.on_s3 else ""
    console.print(f"starting PostgreSQL{storage}, the reference gateway and four workers …")
    with stack.up() as config:
        os.environ.update({name: stack.environment[name] for name in CREDENTIALS if name in stack.environment})
        database = Database.open(config.database, APPLICATION_NAME)
        jobs = submit_samples(database, config)
        rows = watch(database, jobs, console, TIMEOUT_SECONDS)
        if not console.is_terminal:  # on a terminal, the live view has drawn the table
            console.print()
            console.print(table(rows))
        done = [row for row in rows if row["status"] == JobStatus.COMPLETE]
        if done:
            save_results(database, config, [row["id"] for row in done])
            print_shortest(console, {config.results_dir / f"{row['id']}.xml": row["name"] for row in done})
        if keep:
            _keep(stack, console)
    console.print(f"\nThe XML files are in {config.results_dir}. Nothing is left running.", soft_wrap=True)
    return 0 if len(done) == len(rows) - 1 else 1


def submit_samples(database: Database, config: Config) -> dict[UUID, str]:
    from convertq.embedded.demo_stack import samples
    from convertq.queue.mapping import choose_mapping
    from convertq.queue.store import open_store
    from convertq.queue.submission import SubmissionOptions, Submitter

    store = open_store(config)
    store.make_ready()
    submitter = Submitter(database, store, config)
    options = SubmissionOptions(owner="demo", mapping=choose_mapping(config))
    submitted = ((submitter.submit_file(path, options), path.name) for path in samples())
    return {submission.id: name for submission, name in submitted if submission.id}


def save_results(database: Database, config: Config, ids: list[UUID]) -> None:
    """Copies the results out of the bucket, which ends with its server; those in a directory stay there."""
    if config.storage_url is None:
        return
    from convertq.queue.jobs import get_job
    from convertq.queue.result import open_result
    from convertq.queue.store import open_store

    store = open_store(config)
    for job_id in ids:
        job = get_job(database, job_id)
        assert job is not None
        with open_result(job, store).file as xml, open(config.results_dir / f"{job_id}.xml", "wb") as copy:
            shutil.copyfileobj(xml, copy)


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
    """Prints the addresses for a browser, and the settings with which every command works in a second terminal."""
    from convertq.cli.local_stack import export_line

    wanted = ("DATABASE_URL", "GATEWAY_URL", "UPLOADS_DIR", "RESULTS_DIR", *STORAGE_VARIABLES)
    with stack.web() as address:
        console.print("\nThe stack stays up until Ctrl-C. In a browser:\n", soft_wrap=True)
        console.print(f"{address}/        drop PDF files there", markup=False, soft_wrap=True)
        token = stack.environment["ADMIN_TOKEN"]
        console.print(f"{address}/admin   with the token {token}", markup=False, soft_wrap=True)
        console.print("\nIn a second terminal:\n")
        console.print(export_line(stack.environment, wanted), markup=False, soft_wrap=True)
        console.print("convertq list; convertq top\n", soft_wrap=True)
        threading.Event().wait()
