"""The SHA-256 of a file, in constant memory."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

CHUNK_BYTES = 256 * 1024


def sha256_of(file: BinaryIO) -> str:
    """Of what follows the position in the file, which is at its end afterwards."""
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
