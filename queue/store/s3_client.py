"""Requests to S3-compatible storage: signed, sent over kept connections, and tried again where that may help.

The credential chain and presigned URLs are those of the library minio. Its own client reads a whole upload into memory,
knows no `If-None-Match`, and costs more CPU time, so the requests are made here.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import BinaryIO
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from convertq.queue.errors import StorageError
from convertq.queue.http_answer import Answer
from convertq.queue.http_connection import KeptConnection
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store import s3_signature
from convertq.queue.store.s3_answer import StorageAnswer, TransferClock
from convertq.queue.store.s3_connections import Connections
from convertq.queue.store.s3_credentials import CurrentCredentials
from convertq.queue.store.s3_errors import NETWORK_ERRORS, Refusal, is_timeout, network_error, read_refusal
from convertq.queue.store.s3_signature import Signer
from minio.credentials.credentials import Credentials
from minio.credentials.providers import Provider
from minio.signer import presign_v4

READ_TIMEOUT_SECONDS = 30.0  # for each wait, not for a whole transfer
PAUSES_SECONDS = (0.1, 0.5)  # at most so long before the second and the third try; random, so that workers spread
TRIES = 1 + len(PAUSES_SECONDS)
PIECE_BYTES = 64 * 1024
NOTHING = hashlib.sha256(b"").hexdigest()
#: Expected answers of a request that is conditional or may find nothing; every other refusal is a StorageError.
NOT_FOUND, PRECONDITION_FAILED, RANGE_NOT_SATISFIABLE = 404, 412, 416
SAME_HEADERS = "accept-encoding: identity\r\nuser-agent: convertq\r\n"
ABORTED = "the transfer was aborted"


@dataclass(frozen=True)
class Request:
    method: str
    key: str = ""  # empty: the bucket itself
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes | BinaryIO = b""
    sha256: str = NOTHING  # of the body
    accepted: frozenset[int] = frozenset()  # statuses of refusals that the caller handles
    timeout_seconds: float | None = None  # None: READ_TIMEOUT_SECONDS


class _Transient(Exception):
    """A failed try that is worth another one."""

    def __init__(self, error: StorageError) -> None:
        self.error = error


class S3Client:
    """One bucket. It may be made before a fork: each process opens its own connections."""

    def __init__(
        self, url: StorageUrl, endpoint: str | None, region: str, provider: Provider | None = None
    ) -> None:  # fmt: skip
        """Without a provider, the credentials come from the usual AWS chain."""
        self.url, self.region = url, region
        self._base = urlsplit(_base_url(url.bucket, endpoint, region))
        self._connections, self._signer = Connections(self._base), Signer(region)
        self._credentials = CurrentCredentials(provider)
        self.is_aborted = False
        self.bytes_moved = 0  # in both directions, to show that a transfer goes on

    def send(self, request: Request, *, stream: bool = False) -> StorageAnswer:
        """Raises StorageError. With `stream`, the caller reads the body and closes the answer."""
        for pause in PAUSES_SECONDS:
            try:
                return self._try(request, stream)
            except _Transient:
                time.sleep(random.uniform(0, pause))
        try:
            return self._try(request, stream)
        except _Transient as failed:
            raise failed.error from None

    def abort(self) -> None:
        """Called from another thread: what is under way fails at once, and every request until `permit`."""
        self.is_aborted = True
        self._connections.abort()

    def permit(self) -> None:
        self.is_aborted = False

    def _try(self, request: Request, stream: bool) -> StorageAnswer:
        credentials = self._credentials.get()
        try:
            answer = self._exchange(request, credentials)
            if answer.status < 300 or answer.status in request.accepted:
                if not stream:
                    answer.data = answer.read_all()
                return answer
            refusal = read_refusal(answer)
        except StorageError:
            raise
        except NETWORK_ERRORS as error:
            if self.is_aborted:
                raise StorageError(ABORTED) from None
            if is_timeout(error):
                raise network_error(error) from None  # another try could take as long again
            raise _Transient(network_error(error)) from None
        raise self._error_of(refusal, credentials)

    def _error_of(self, refusal: Refusal, credentials: Credentials) -> Exception:
        """Credentials that were replaced before they expired are used at once."""
        if refusal.is_transient or (refusal.is_about_credentials and self._credentials.are_replaced(credentials)):
            return _Transient(refusal.as_error())
        return refusal.as_error()

    # -- one request --

    def _exchange(self, request: Request, credentials: Credentials) -> StorageAnswer:
        if not isinstance(request.body, bytes):
            request.body.seek(0)
        beginning = self._beginning(request, credentials)
        timeout_seconds = request.timeout_seconds or READ_TIMEOUT_SECONDS
        connection, clock, answer = self._connections.take(), TransferClock(timeout_seconds), None
        try:
            answer = connection.begin(
                self._pieces(beginning, request.body, clock), is_head=request.method == "HEAD",
                timeout_seconds=timeout_seconds,
            )  # fmt: skip
        finally:
            if answer is None:
                self._release(connection, None)
        return StorageAnswer(answer, clock, self._count, partial(self._release, connection))

    def _beginning(self, request: Request, credentials: Credentials) -> bytes:
        """The request line and the headers."""
        path, query = _path(self._base, request.key), _encoded(request.query)
        given = {
            "host": self._base.netloc, "x-amz-content-sha256": request.sha256,
            "x-amz-date": s3_signature.timestamp(), **request.headers,
        }  # fmt: skip
        if credentials.session_token:
            given["x-amz-security-token"] = credentials.session_token
        headers = dict(sorted(given.items()))
        signature = self._signer.authorization(credentials, request.method, path, query, headers)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if request.body or request.method in ("PUT", "POST"):
            lines += f"content-length: {_size_of(request.body)}\r\n"
        target = f"{path}?{query}" if query else path
        return f"{request.method} {target} HTTP/1.1\r\n{lines}{SAME_HEADERS}authorization: {signature}\r\n\r\n".encode()

    def _pieces(self, beginning: bytes, body: bytes | BinaryIO, clock: TransferClock) -> Iterator[bytes]:
        """A small body goes out in one piece with the headers."""
        piece = beginning + (body if isinstance(body, bytes) else body.read(PIECE_BYTES))
        while piece:
            if self.is_aborted:
                raise StorageError(ABORTED)
            self.bytes_moved += len(piece)
            clock.start()
            yield piece
            if isinstance(body, bytes):
                return
            clock.stop(len(piece))
            piece = body.read(PIECE_BYTES)

    def _count(self, moved: int) -> None:
        self.bytes_moved += moved

    def _release(self, connection: KeptConnection, answer: Answer | None) -> None:
        connection.end(answer)
        self._connections.give_back(connection)

    def presign_get(self, key: str, query: Mapping[str, str], seconds: int, endpoint: str | None) -> str:
        """A URL by which anyone can read this object, at another address of the same storage if one is given."""
        credentials = self._credentials.get()
        if credentials.session_token:
            query = {**query, "X-Amz-Security-Token": credentials.session_token}
        base = urlsplit(_base_url(self.url.bucket, endpoint, self.region)) if endpoint else self._base
        signed = presign_v4(
            method="GET", url=base._replace(path=_path(base, key), query=_encoded(query)), region=self.region,
            credentials=credentials, date=datetime.now(UTC), expires=seconds,
        )  # fmt: skip
        return signed.geturl()


def _path(base: SplitResult, key: str) -> str:
    return f"{base.path}/{quote(key, safe='/~')}" if key else base.path or "/"


def _encoded(query: Mapping[str, str]) -> str:
    return urlencode(sorted(query.items()), quote_via=quote, safe="~") if query else ""


def _base_url(bucket: str, endpoint: str | None, region: str) -> str:
    """With an endpoint by path. On AWS by host name, unless dots in the name would not match the certificate."""
    if endpoint:
        return f"{endpoint}/{bucket}"
    domain = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    return f"https://{domain}/{bucket}" if "." in bucket else f"https://{bucket}.{domain}"


def _size_of(body: bytes | BinaryIO) -> int:
    return len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
