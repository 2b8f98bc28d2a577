"""Object storage in tests: the settings for a process, and what is really in the bucket."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from uuid import UUID

from convertq.embedded.s3 import EmbeddedS3
from convertq.queue.storage_url import parse_storage_url
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_client import Request

from tests.documents import PDF, Documents

BUCKET = "convertq-tests"


class Storage:
    """A prefix of its own in the bucket of the tests. `endpoint` is for convertq, which a proxy may be in front of."""

    def __init__(self, server: EmbeddedS3, endpoint: str | None = None) -> None:
        self.url = parse_storage_url(f"s3://{BUCKET}/{uuid.uuid4().hex[:12]}")
        self.environment = {
            **server.environment,
            "S3_ENDPOINT_URL": endpoint or server.endpoint,
            "STORAGE_URL": str(self.url),
        }
        self.bucket = Bucket(server.client(self.url))

    def keys(self, below: str = "") -> list[str]:
        """Without the prefix."""
        start = f"{self.url.prefix}{below}"
        return sorted(found.key.removeprefix(self.url.prefix) for found in self.bucket.list_objects(start))

    def results_of(self, job_id: UUID) -> list[str]:
        return self.keys(f"results/{job_id}/")

    def read(self, location: str) -> bytes:
        key = location.removeprefix(self.url.location_of(""))
        answer = self.bucket.get(key)
        data: bytes = answer.read_all()
        return data

    def fetch(self, location: str, path: Path) -> None:
        path.write_bytes(self.read(location))

    def sha256_of(self, location: str) -> str:
        found = self.bucket.head(location.removeprefix(self.url.location_of("")))
        return found.sha256 if found else ""

    def write(self, name: str, content: bytes) -> str:
        """As another program does: without convertq's metadata."""
        key = f"{self.url.prefix}{name}"
        self.bucket.client.send(Request("PUT", key, body=content, sha256=hashlib.sha256(content).hexdigest()))
        return self.url.location_of(key)

    def delete(self, location: str) -> None:
        self.bucket.delete(location.removeprefix(self.url.location_of("")))


class StoredDocuments(Documents):
    """Documents whose sources are in the bucket, put there as an application in another language does."""

    storage: Storage

    def upload(self, content: bytes = PDF) -> UUID:
        job_id = uuid.uuid4()
        self.storage.write(f"uploads/{job_id}.pdf", content)
        return job_id
