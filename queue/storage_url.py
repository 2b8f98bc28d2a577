"""Where object storage is: `s3://BUCKET/PREFIX`, as STORAGE_URL and STORAGE_READ_URL name it."""

from __future__ import annotations

import re
from dataclasses import dataclass

BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
PREFIX = r"[A-Za-z0-9!_.*'()/=-]*"
MAX_PREFIX_CHARACTERS = 512  # a key has at most 1024 bytes


@dataclass(frozen=True)
class StorageUrl:
    bucket: str
    prefix: str  # empty, or with one slash at its end

    def location_of(self, key: str) -> str:
        """What a row names."""
        return f"s3://{self.bucket}/{key}"

    def __str__(self) -> str:
        return self.location_of(self.prefix)


def parse_storage_url(text: str) -> StorageUrl:
    """Raises ValueError with what is allowed."""
    match = re.fullmatch(rf"s3://({BUCKET})(?:/({PREFIX}))?", text.strip())
    if match is None or ".." in match[1]:
        raise ValueError("must be s3://BUCKET or s3://BUCKET/PREFIX, without spaces or credentials")
    parts = [part for part in (match[2] or "").split("/") if part]
    prefix = "".join(f"{part}/" for part in parts)
    if {".", ".."} & set(parts) or len(prefix) > MAX_PREFIX_CHARACTERS:
        raise ValueError(f"the prefix must be plain names of at most {MAX_PREFIX_CHARACTERS} characters together")
    return StorageUrl(match[1], prefix)
