"""What can be done with the objects of one bucket. Every problem is an OSError."""

from __future__ import annotations

import base64
import errno
import hashlib
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import BinaryIO
from urllib.parse import unquote
from xml.sax.saxutils import escape

from convertq.queue.errors import StorageError
from convertq.queue.store.s3_answer import SHA256_METADATA, StorageAnswer
from convertq.queue.store.s3_client import NOT_FOUND, PRECONDITION_FAILED, Request, S3Client

KEYS_PER_DELETION = 1000  # the protocol's limit
REQUIRE_EVERY_SECONDS = 10.0  # Many objects may be missing, and the bucket is checked only so often.


@dataclass(frozen=True)
class ObjectInfo:
    size: int
    etag: str
    sha256: str  # empty where another program has stored the object


@dataclass(frozen=True)
class ListedObject:
    key: str
    written_at: datetime
    age_seconds: float  # by the clock of the storage
    size: int = 0
    upload_id: str = ""  # of an unfinished multipart upload


class Bucket:
    def __init__(self, client: S3Client) -> None:
        self.client = client
        self.url = client.url
        self._required_until = 0.0  # until then the bucket counts as existing

    # -- single objects --

    def put(self, key: str, file: BinaryIO | bytes, sha256: str, content_type: str, *, only_new: bool) -> None:
        """With `only_new` nothing is replaced: FileExistsError, unless the same content is there already."""
        headers = {
            "content-type": content_type, SHA256_METADATA: sha256,
            "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode(),
        }  # fmt: skip
        if only_new:
            headers["if-none-match"] = "*"
        accepted = frozenset({PRECONDITION_FAILED} if only_new else ())
        answer = self.client.send(Request("PUT", key, {}, headers, file, sha256, accepted))
        if answer.status == PRECONDITION_FAILED:
            found = self.head(key)
            if found is None or found.sha256 != sha256:
                raise FileExistsError(errno.EEXIST, "another object has this key")

    def copy(self, source: str, target: str) -> None:
        """Inside the storage; an object that is there is replaced."""
        answer = self.client.send(Request("PUT", target, {}, {"x-amz-copy-source": f"/{self.url.bucket}/{source}"}))
        if b"<Error>" in answer.data:  # A copy may fail after the storage has sent the status 200.
            raise StorageError("the object could not be copied")

    def head(self, key: str) -> ObjectInfo | None:
        """None when it does not exist. The answer to HEAD does not say whether the bucket exists: that is checked."""
        answer = self.client.send(Request("HEAD", key, accepted=frozenset({NOT_FOUND})))
        if answer.status == NOT_FOUND:
            if time.monotonic() >= self._required_until:
                self.require()
            return None
        return ObjectInfo(answer.size, answer.etag, answer.sha256)

    def get(self, key: str, start: int = 0, etag: str = "") -> StorageAnswer:
        """The caller reads it to its end, or closes it. Raises FileNotFoundError; with an etag also when it changed."""
        headers = {"range": f"bytes={start}-"} if start else {}
        headers |= {"if-match": f'"{etag}"'} if etag else {}
        answer = self.client.send(
            Request("GET", key, {}, headers, accepted=frozenset({NOT_FOUND, PRECONDITION_FAILED})), stream=True
        )
        if answer.status in (NOT_FOUND, PRECONDITION_FAILED):
            is_bucket_missing = b"<Code>NoSuchBucket</Code>" in answer.read_all()
            if is_bucket_missing:
                self.require()
            raise FileNotFoundError(errno.ENOENT, "no such object")
        return answer

    def require(self) -> None:
        """Raises StorageError when the bucket does not exist or must not be listed."""
        self.client.send(Request("GET", "", {"list-type": "2", "max-keys": "1", "prefix": self.url.prefix}))
        self._required_until = time.monotonic() + REQUIRE_EVERY_SECONDS

    # -- many objects --

    def list_objects(self, prefix: str) -> Iterator[ListedObject]:
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        while True:
            answer = self.client.send(Request("GET", "", query))
            page = ET.fromstring(answer.data)
            now = storage_time(answer)
            for found in page.iterfind("{*}Contents"):
                yield _listed(found, "LastModified", now)
            token = page.findtext("{*}NextContinuationToken")
            if page.findtext("{*}IsTruncated") != "true" or not token:
                return
            query = {**query, "continuation-token": token}

    def list_uploads(self, prefix: str) -> Iterator[ListedObject]:
        """Multipart uploads that were begun and neither completed nor aborted."""
        query = {"uploads": "", "encoding-type": "url", "prefix": prefix}
        while True:
            answer = self.client.send(Request("GET", "", query))
            page = ET.fromstring(answer.data)
            now = storage_time(answer)
            for found in page.iterfind("{*}Upload"):
                yield _listed(found, "Initiated", now)
            if page.findtext("{*}IsTruncated") != "true":
                return
            markers = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
            query |= {name: unquote(page.findtext(f"{{*}}{element}") or "") for name, element in markers.items()}

    def abort_upload(self, key: str, upload_id: str) -> None:
        self.client.send(Request("DELETE", key, {"uploadId": upload_id}, accepted=frozenset({NOT_FOUND})))

    def delete(self, key: str) -> None:
        self.client.send(Request("DELETE", key, accepted=frozenset({NOT_FOUND})))

    def delete_all(self, keys: Sequence[str]) -> dict[str, str]:
        """Returns the keys that could not be deleted, each with the reason. A missing object counts as deleted."""
        errors: dict[str, str] = {}
        for start in range(0, len(keys), KEYS_PER_DELETION):
            errors |= self._delete_page(keys[start : start + KEYS_PER_DELETION])
        return errors

    def _delete_page(self, keys: Sequence[str]) -> dict[str, str]:
        listed = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{listed}</Delete>".encode()
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        request = Request("POST", "", {"delete": ""}, {"content-md5": md5}, body, hashlib.sha256(body).hexdigest())
        page = ET.fromstring(self.client.send(request).data)
        return {
            found.findtext("{*}Key") or "": f"storage: {found.findtext('{*}Code') or 'the deletion failed'}"
            for found in page.iterfind("{*}Error")
        }


def storage_time(answer: StorageAnswer) -> datetime:
    """The storage's own clock: by it an object is old, whatever the clock of this host."""
    try:
        return parsedate_to_datetime(answer.header("date") or "").astimezone(UTC)
    except ValueError:
        return datetime.now(UTC)


def _listed(found: ET.Element, time_element: str, now: datetime) -> ListedObject:
    written_at = datetime.fromisoformat(found.findtext(f"{{*}}{time_element}") or "1970-01-01T00:00:00Z")
    key, upload_id = unquote(found.findtext("{*}Key") or ""), found.findtext("{*}UploadId") or ""
    size = int(found.findtext("{*}Size") or 0)
    return ListedObject(key, written_at, (now - written_at).total_seconds(), size, upload_id)
