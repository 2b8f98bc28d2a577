"""Which run of its job made a result, as an extended attribute. Without one, a result is of the first run."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import BinaryIO

AnyPath = str | Path

RUN_ATTRIBUTE = "user.convertq.run"


def mark_run(file: BinaryIO, run: int) -> None:
    """The first run needs no mark. Where a mark cannot be kept, later runs use no result that they find."""
    if run > 1:
        with contextlib.suppress(OSError):
            os.setxattr(file.fileno(), RUN_ATTRIBUTE, str(run).encode())


def run_of(path: AnyPath) -> int | None:
    """The run that made this result; None where the file system keeps no marks."""
    try:
        return int(os.getxattr(path, RUN_ATTRIBUTE, follow_symlinks=False))
    except OSError as error:
        return 1 if error.errno == errno.ENODATA else None
    except ValueError:
        return None


def is_of_run(path: AnyPath, run: int) -> bool:
    return run_of(path) in ((1, None) if run == 1 else (run,))


def is_of_earlier_run(result: AnyPath, temporary: AnyPath, run: int) -> bool:
    """Whether the file under the name of this run's result may be removed.

    The temporary file's own mark proves that the file system keeps marks: without that, a file without a mark could be
    of any run, a later one included.
    """
    return run > 1 and (run_of(result) or run) < run == run_of(temporary)
