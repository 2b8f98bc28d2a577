"""The command `convertq result`: a job's XML, byte for byte."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO
from uuid import UUID, uuid4

import click
from convertq.cli.context import COMPLETE_JOB_ID, open_database, the_store
from convertq.cli.exit_code import ExitCode, Stop
from convertq.queue.errors import Code
from convertq.queue.jobs import get_job
from convertq.queue.result import Expired, NotReady, count_download, open_result
from psycopg.rows import DictRow


@click.command(
    epilog="""\b
Example:
  convertq result 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 > invoice.xml
  convertq result 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 -o invoice.xml
"""
)
@click.argument("job_id", metavar="ID", type=COMPLETE_JOB_ID)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file, atomically.")
def result(job_id: UUID, output: Path | None) -> None:
    """Write a job's XML to stdout or to a file; counts as a download."""
    with open_database() as database:
        with open_or_stop(job_id, get_job(database, job_id)) as xml:
            if output is None or str(output) == "-":
                shutil.copyfileobj(xml, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                copy_whole(xml, output)
        count_download(database, job_id)


def open_or_stop(job_id: UUID, job: DictRow | None) -> BinaryIO:
    if job is None:
        raise Stop(ExitCode.NO_SUCH_JOB, f"{job_id}: no such job")
    try:
        return open_result(job, the_store()).file
    except NotReady as error:
        raise Stop(ExitCode.NOT_IN_STATE, f"{Code.NOT_READY}: job {job_id} is {error.status}") from None
    except Expired:
        reason = f"the result of job {job_id} is gone; submit the file again"
        raise Stop(ExitCode.NOT_IN_STATE, f"{Code.EXPIRED}: {reason}") from None


def copy_whole(xml: BinaryIO, output: Path) -> None:
    """A pipe or a device such as /dev/null is written to; a file is replaced in one step."""
    if output.exists() and not output.is_file():
        with open(output, "wb") as sink:
            shutil.copyfileobj(xml, sink)
        return
    temporary = output.with_name(f".{uuid4()}.part")
    try:
        with open(temporary, "xb") as sink:
            shutil.copyfileobj(xml, sink)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(output)
    except OSError as error:
        error.filename = str(output)  # not the temporary file's name, which the caller did not choose
        error.filename2 = None
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
