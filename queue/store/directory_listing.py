"""Files in a directory by the names that convertq gives them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from convertq.queue.store.protocol import StoredFile

ID = r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
SOURCE = re.compile(rf"{ID}\.pdf")
RESULT = re.compile(rf"{ID}\.xml")
TEMPORARY = re.compile(r"\.([0-9a-f-]{36})\.([0-9]+)\.([A-Za-z0-9_-]+)\.part")


def list_directory(directory: Path, pattern: re.Pattern[str]) -> Iterator[StoredFile]:
    """Regular files with names that convertq makes; any other file is not even examined."""
    with os.scandir(directory) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            # The id may not be a UUID, and the file may have been removed meanwhile.
            with contextlib.suppress(ValueError, OSError):
                yield _stored_file(entry, match)


def _stored_file(entry: os.DirEntry[str], match: re.Match[str]) -> StoredFile:
    job_id, attempt, holder = (*match.groups(), "0", "")[:3]  # only a temporary file has the last two
    written_at = entry.stat(follow_symlinks=False).st_mtime
    timestamp = datetime.fromtimestamp(written_at, UTC)
    return StoredFile(entry.path, UUID(job_id), timestamp, time.time() - written_at, int(attempt), holder)
