"""What `convertq doctor` checks of object storage: every right that convertq needs, and that writes are conditional."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from convertq.queue.doctor.finding import Finding, bad, ok, warn
from convertq.queue.errors import StorageError
from convertq.queue.store.s3_bucket import Bucket, storage_time
from convertq.queue.store.s3_client import PRECONDITION_FAILED, Request
from convertq.queue.store.s3_keys import Keys

NAME = "storage"
REMEDY = "see STORAGE_URL, S3_ENDPOINT_URL, S3_REGION and the credentials"
CLOCK_DIFFERENCE_SECONDS = 60.0  # storage refuses requests beyond 15 minutes
SLOW_CALL_SECONDS = 0.5


def check_storage(bucket: Bucket, keys: Keys) -> list[Finding]:
    try:
        return _examine(bucket, keys)
    except StorageError as error:
        return [bad(NAME, f"{bucket.url}: {(error.strerror or '').removeprefix('storage: ')}", REMEDY)]


def _examine(bucket: Bucket, keys: Keys) -> list[Finding]:
    key, content = keys.probe(uuid4()), b"convertq doctor"
    sha256 = hashlib.sha256(content).hexdigest()
    listing = Request("GET", "", {"list-type": "2", "max-keys": "1", "prefix": bucket.url.prefix})
    clock_difference = abs((storage_time(bucket.client.send(listing)) - datetime.now(UTC)).total_seconds())
    durations = [_seconds(lambda: bucket.put(key, content, sha256, "text/plain", only_new=True))]
    is_conditional = _refuses_second_write(bucket, key)
    durations.append(_seconds(lambda: bucket.get(key).read_all()))
    durations.append(_seconds(lambda: bucket.delete(key)))
    return [
        _conditional(bucket, is_conditional),
        _speed(max(durations)),
        _clock(clock_difference),
    ]


def _refuses_second_write(bucket: Bucket, key: str) -> bool:
    other = b"another content"
    request = Request(
        "PUT", key, {}, {"if-none-match": "*"}, other, hashlib.sha256(other).hexdigest(),
        frozenset({PRECONDITION_FAILED}),
    )  # fmt: skip
    return bucket.client.send(request).status == PRECONDITION_FAILED


def _conditional(bucket: Bucket, is_conditional: bool) -> Finding:
    if is_conditional:
        return ok(NAME, f"{bucket.url}: reads, writes, lists, deletes, and honours If-None-Match")
    what = f"{bucket.url}: it replaces an object although If-None-Match forbids that"
    return bad(NAME, what, "use storage that supports conditional writes, or a newer version of it")


def _speed(seconds: float) -> Finding:
    summary = f"the slowest of three calls took {seconds * 1000:.0f} ms"
    if seconds > SLOW_CALL_SECONDS:
        return warn(NAME, summary, "look at the storage's load and at the network between")
    return ok(NAME, summary)


def _clock(seconds: float) -> Finding:
    summary = f"its clock and this host's differ by {seconds:.0f} s"
    if seconds > CLOCK_DIFFERENCE_SECONDS:
        return warn(NAME, summary, "set this host's clock: requests are refused from 15 minutes on")
    return ok(NAME, summary)


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began
