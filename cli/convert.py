"""The command `convertq convert`: PDF files in, XML files out, with a queue that exists only meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from convertq.cli.completion import complete_mapping
from convertq.cli.context import complain, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.formatting import shown
from convertq.queue.database.database import Database
from convertq.queue.status import JobStatus

#: Settings that lead to a real queue, its files, or what watches it: the temporary queue has its own.
REPLACED = ("DATABASE_URL", "STORAGE_URL", "STORAGE_READ_URL", "LOG_FILE", "METRICS_PORT")


@dataclass
class File:
    """One file of the command line, and what became of it."""

    path: Path
    output: Path
    job: UUID | None = None
    status: str = JobStatus.FAILED
    error_code: str | None = None
    error_message: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        output = shown(str(self.output)) if self.status == JobStatus.COMPLETE else None
        return {
            "file": shown(str(self.path)), "output": output, "status": self.status,
            "error_code": self.error_code, "error_message": self.error_message,
        }  # fmt: skip


@click.command(
    epilog="""\b
Example:
  convertq convert invoice.pdf
  convertq convert invoices/*.pdf -o xml
"""
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="DIR",
    help="Where the XML files go. Default: here.",
)  # fmt: skip
@click.option("--mapping", shell_complete=complete_mapping, help="The conversion, as for `submit`.")
@json_option
def convert(paths: Sequence[Path], output: Path, mapping: str | None, as_json: bool) -> ExitCode:
    """Convert PDF files to {stem}.xml with a temporary queue; exit 1 if any failed.

    Existing XML files are replaced, each in one step. Of files with equal stems, the second becomes "{stem} (2).xml".
    The reference gateway converts them, unless GATEWAY_URL or GATEWAYS_FILE names another; DATABASE_URL is not used.
    """
    from convertq.cli.local_stack import names_gateway, refuse_without_extra
    from convertq.embedded.binaries import EmbeddedError

    refuse_without_extra(
        "convertq convert", needs_web=False, needs_database=True, needs_gateway=not names_gateway(os.environ)
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends it as Ctrl-C does
    output.mkdir(parents=True, exist_ok=True)
    files = [File(path, output / name) for path, name in zip(paths, choose_names(paths), strict=True)]
    try:
        convert_files(files, mapping)
    except EmbeddedError as error:
        raise Stop(ExitCode.FAILED, str(error)) from None
    for file in files:
        report(file, as_json)
    return ExitCode.DONE if all(file.status == JobStatus.COMPLETE for file in files) else ExitCode.FAILED


def choose_names(paths: Sequence[Path]) -> list[str]:
    """`invoice.xml`, and for the next file with that stem `invoice (2).xml`."""
    names: list[str] = []
    for path in paths:
        name, number = f"{path.stem}.xml", 1
        while name in names:
            number += 1
            name = f"{path.stem} ({number}).xml"
        names.append(name)
    return names


def convert_files(files: Sequence[File], mapping: str | None) -> None:
    from convertq.cli.local_stack import prepare_database, start_gateway
    from convertq.cli.submit import allowed_mapping
    from convertq.cli.waiting import wait_for_jobs
    from convertq.embedded.local_stack import LocalStack
    from convertq.embedded.postgres import FAST, EmbeddedPostgres

    with ExitStack() as temporary:
        home = Path(tempfile.mkdtemp(prefix="convertq-convert-"))
        temporary.callback(shutil.rmtree, home, ignore_errors=True)
        stack = temporary.enter_context(LocalStack(settings(home), log_folder=home))
        stack.start_database(EmbeddedPostgres(settings={**FAST, "autovacuum": "on"}))
        start_gateway(stack)
        for name in REPLACED:
            os.environ.pop(name, None)
        prepare_database(stack, is_embedded=True)
        chosen = allowed_mapping(mapping)
        stack.start_worker()
        with open_database() as database:
            submit_files(database, files, chosen)
            jobs = list(dict.fromkeys(file.job for file in files if file.job))
            if jobs:
                wait_for_jobs(
                    database, jobs, ended=lambda row: save(database, row, files), check=stack.refuse_ended_part
                )


def settings(home: Path) -> dict[str, str]:
    """The caller's, without those that lead to a real queue."""
    given = {name: value for name, value in os.environ.items() if value and name not in REPLACED}
    return given | {
        "UPLOADS_DIR": str(home / "uploads"),
        "RESULTS_DIR": str(home / "results"),
        "RESULTS_MIN_FREE_MB": "1",
        "WORKER_SHUTDOWN_GRACE_SEC": "0",
    }


def submit_files(database: Database, files: Sequence[File], mapping: str) -> None:
    from convertq.cli.context import configuration
    from convertq.cli.submit import submit_one
    from convertq.queue.submission import SubmissionOptions, SubmissionResult, Submitter

    store = the_store()
    store.make_ready()
    submitter = Submitter(database, store, configuration())
    for file in files:
        done = submit_one(submitter, file.path, SubmissionOptions(owner="convert", mapping=mapping), quiet=True)
        if done.how is SubmissionResult.REFUSED:
            file.error_code, file.error_message = done.code, done.message
        else:
            file.job = done.id


def save(database: Database, row: dict[str, Any], files: Sequence[File]) -> None:
    """Files with the same content have one job, and each gets its result."""
    from convertq.cli.result import copy_whole, open_or_stop
    from convertq.queue.errors import Code
    from convertq.queue.jobs import get_job

    for file in (file for file in files if file.job == row["id"]):
        file.error_code, file.error_message = row["error_code"], row["error_message"]
        if row["status"] != JobStatus.COMPLETE:
            continue
        try:
            with open_or_stop(row["id"], get_job(database, row["id"])) as xml:
                copy_whole(xml, file.output)
        except OSError as error:
            file.error_code, file.error_message = Code.IO_ERROR, f"{file.output}: {(error.strerror or '').lower()}"
        else:
            file.status = JobStatus.COMPLETE


def report(file: File, as_json: bool) -> None:
    if as_json:
        print_json(file.document)
    elif file.status == JobStatus.COMPLETE:
        click.echo(str(file.output))
    else:
        complain(f"{shown(str(file.path))}: {file.error_code}: {file.error_message}")
