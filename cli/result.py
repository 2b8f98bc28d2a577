"""The command `convertq result`: a job's XML, byte for byte."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import BinaryIO
from uuid import UUID, uuid4

import click
from convertq.cli.context import COMPLETE_JOB_ID, open_database, the_files
from convertq.cli.exit_code import ExitCode, Stop
from convertq.worker.errors import Code
from convertq.worker.files import discard, open_regular, sync
from psycopg.rows import DictRow


@click.command(
    epilog="""\b
Example:
  convertq result 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 > invoice.xml
  convertq result 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 -o invoice.xml
"""
)
@click.argument("job_id", metavar="ID", type=COMPLETE_JOB_ID)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
def result(job_id: UUID, output: Path | None) -> None:
    """Write a job's XML to stdout or to a file; counts as a download."""
    with open_database() as database:
        with open_result(job_id, database.one("get_job", id=job_id)) as xml:
            if output is None or str(output) == "-":
                shutil.copyfileobj(xml, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                copy_whole(xml, output)
        database.run("count_download", id=job_id)


def open_result(job_id: UUID, job: DictRow | None) -> BinaryIO:
    if job is None:
        raise Stop(ExitCode.NO_SUCH_JOB, f"{job_id}: no such job")
    if job["status"] != "complete":
        raise Stop(ExitCode.NOT_IN_STATE, f"{Code.NOT_READY}: job {job_id} is {job['status']}")
    gone = Stop(ExitCode.NOT_IN_STATE, f"{Code.EXPIRED}: the result of job {job_id} is gone; submit the file again")
    if job["result_path"] is None:
        raise gone
    try:
        return open_regular(the_files().result(job_id))
    except FileNotFoundError:
        raise gone from None


def copy_whole(xml: BinaryIO, output: Path) -> None:
    """A name that is no regular file (a pipe, /dev/null) is written to; any other is replaced in one step."""
    if output.exists() and not output.is_file():
        with open(output, "wb") as sink:
            shutil.copyfileobj(xml, sink)
        return
    part = output.with_name(f".{uuid4()}.part")
    try:
        with open(part, "xb") as sink:
            shutil.copyfileobj(xml, sink)
            sync(sink)
        part.replace(output)
    except OSError as error:
        error.filename = str(output)  # the temp file's name would tell nobody anything
        error.filename2 = None
        raise
    finally:
        discard(part)
