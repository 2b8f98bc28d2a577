"""Files in the two directories by their names alone, for whoever asks whether a job still wants them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from convertq.worker.files import PART, Files

GRACE = 24 * 3600  # s: a file without a job may belong to a submission or an attempt under way
ID = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
SOURCE = re.compile(rf"{ID}\.pdf")
RESULT = re.compile(rf"{ID}\.xml")


#: a file, the job that its name tells, and since when it could go
Found = tuple[Path, UUID, datetime]


@dataclass(frozen=True)
class Stray:
    path: Path
    job_id: UUID
    written_at: float
    attempt: int = 0

    @property
    def is_old(self) -> bool:
        return time.time() - self.written_at > GRACE

    @property
    def as_found(self) -> Found:
        return self.path, self.job_id, datetime.fromtimestamp(self.written_at, UTC)


def source_files(files: Files) -> Iterator[Stray]:
    return _named(files.uploads, SOURCE)


def result_files(files: Files) -> Iterator[Stray]:
    return _named(files.results, RESULT)


def temp_files(files: Files) -> Iterator[Stray]:
    for directory in {files.uploads.resolve(): files.uploads, files.results.resolve(): files.results}.values():
        yield from _named(directory, PART)


def _named(directory: Path, pattern: re.Pattern[str]) -> Iterator[Stray]:
    """Regular files with names that convertq makes; nothing else is even looked at."""
    with os.scandir(directory) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(ValueError, OSError):  # a part's id that is none; a file that went away
                attempt = int(match[2]) if pattern is PART else 0
                written_at = entry.stat(follow_symlinks=False).st_mtime
                yield Stray(Path(entry.path), UUID(match[1]), written_at, attempt)
