"""Requests to S3-compatible storage: signed, sent over kept connections, and tried again where that may help.

The credential chain and the signature are those of the library minio. Its own client reads a whole upload into memory
and knows no `If-None-Match`, so the requests are made here.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import urllib3
from convertq.queue.errors import StorageError
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.s3_errors import Refusal, network_error, read_refusal
from minio.credentials.credentials import Credentials
from minio.credentials.providers import AWSConfigProvider, ChainedProvider, EnvAWSProvider, IamAwsProvider, Provider
from minio.signer import presign_v4, sign_v4_s3
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as RequestTimeout
from urllib3.response import BaseHTTPResponse

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0  # for each wait, not for a whole transfer
METADATA_TIMEOUT_SECONDS = 2.0  # for the service that gives an instance its credentials
PAUSES_SECONDS = (0.1, 0.5)  # at most so long before the second and the third try; random, so that workers spread
TRIES = 1 + len(PAUSES_SECONDS)
#: A file of credentials may be replaced by another program at any time, and reading it costs as much as a request.
KEEP_CREDENTIALS_SECONDS = 10.0
CONNECTIONS = 64  # kept in a web process; a worker uses one
NOTHING = hashlib.sha256(b"").hexdigest()
#: Expected answers of a request that is conditional or may find nothing; every other refusal is a StorageError.
NOT_FOUND, PRECONDITION_FAILED, RANGE_NOT_SATISFIABLE = 404, 412, 416


@dataclass(frozen=True)
class Request:
    method: str
    key: str = ""  # empty: the bucket itself
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | BinaryIO = b""
    sha256: str = NOTHING  # of the body
    accepted: frozenset[int] = frozenset()  # statuses of refusals that the caller handles
    timeout_seconds: float = READ_TIMEOUT_SECONDS


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
        self.url, self.region, self._provider = url, region, provider
        self._base = urlsplit(_base_url(url.bucket, endpoint, region))
        self._owner = 0  # the process that the connections belong to
        self._pool = self._open_pool()
        self._metadata_pool = urllib3.PoolManager()
        self._credentials: Credentials | None = None
        self._credentials_until = 0.0

    def send(self, request: Request, *, stream: bool = False) -> BaseHTTPResponse:
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

    def _try(self, request: Request, stream: bool) -> BaseHTTPResponse:
        self._open_after_fork()
        try:
            answer = self._exchange(request)
            if answer.status < 300 or answer.status in request.accepted:
                if not stream:
                    answer.read(cache_content=True)
                return answer
            refusal = read_refusal(answer)
            answer.close()
        except StorageError:
            raise
        except (HTTPError, OSError) as error:
            if isinstance(error, RequestTimeout) and not isinstance(error, NewConnectionError):
                raise network_error(error) from None  # another try could take as long again
            raise _Transient(network_error(error)) from None
        raise self._error_of(refusal)

    def _error_of(self, refusal: Refusal) -> Exception:
        if refusal.status == 403:
            self._credentials = None  # they may have been renewed
        return _Transient(refusal.as_error()) if refusal.is_transient else refusal.as_error()

    def _exchange(self, request: Request) -> BaseHTTPResponse:
        url = self._address(request.key, request.query)
        headers = self._signed_headers(request, url)
        if not isinstance(request.body, bytes):
            request.body.seek(0)
        if request.body or request.method in ("PUT", "POST"):
            headers["Content-Length"] = str(_size_of(request.body))
        return self._pool.urlopen(
            request.method, f"{url.path}?{url.query}" if url.query else url.path, body=request.body or None,
            headers=headers, retries=False, redirect=False, assert_same_host=False,
            preload_content=False, decode_content=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=request.timeout_seconds),
        )  # fmt: skip

    def _signed_headers(self, request: Request, url: SplitResult) -> dict[str, str]:
        now, credentials = datetime.now(UTC), self._current_credentials()
        headers = {
            "Host": url.netloc, "x-amz-content-sha256": request.sha256, "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
            **request.headers,
        }  # fmt: skip
        if credentials.session_token:
            headers["x-amz-security-token"] = credentials.session_token
        signed = sign_v4_s3(
            method=request.method, url=url, region=self.region, headers=dict(headers), credentials=credentials,
            content_sha256=request.sha256, date=now,
        )  # fmt: skip
        return {name: str(value) for name, value in signed.items()} | {"Accept-Encoding": "identity"}

    def presign_get(self, key: str, query: Mapping[str, str], seconds: int, endpoint: str | None) -> str:
        """A URL by which anyone can read this object, at another address of the same storage if one is given."""
        credentials = self._current_credentials()
        if credentials.session_token:
            query = {**query, "X-Amz-Security-Token": credentials.session_token}
        base = urlsplit(_base_url(self.url.bucket, endpoint, self.region)) if endpoint else self._base
        signed = presign_v4(
            method="GET", url=self._address(key, query, base), region=self.region, credentials=credentials,
            date=datetime.now(UTC), expires=seconds,
        )  # fmt: skip
        return signed.geturl()

    def _address(self, key: str, query: Mapping[str, str], base: SplitResult | None = None) -> SplitResult:
        base = base or self._base
        path = f"{base.path}/{quote(key, safe='/~')}" if key else base.path or "/"
        return base._replace(path=path, query=urlencode(sorted(query.items()), quote_via=quote, safe="~"))

    def _current_credentials(self) -> Credentials:
        now = time.monotonic()
        if self._credentials is None or now >= self._credentials_until:
            self._open_after_fork()
            try:
                self._credentials = self._find_credentials()
            except (ValueError, OSError, HTTPError):
                reason = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                raise StorageError(reason) from None
            self._credentials_until = now + KEEP_CREDENTIALS_SECONDS
        return self._credentials

    def _open_pool(self) -> urllib3.HTTPConnectionPool:
        return urllib3.connection_from_url(f"{self._base.scheme}://{self._base.netloc}", maxsize=CONNECTIONS)

    def _find_credentials(self) -> Credentials:
        """The chain is made again each time: it would keep what it has found, also when that was replaced."""
        if self._provider is not None:
            return self._provider.retrieve()
        instance = IamAwsProvider(http_client=self._metadata_pool)
        return ChainedProvider([EnvAWSProvider(), AWSConfigProvider(), instance]).retrieve()

    def _open_after_fork(self) -> None:
        if self._owner == os.getpid():
            return
        self._owner, self._credentials = os.getpid(), None
        self._pool = self._open_pool()
        self._metadata_pool = urllib3.PoolManager(timeout=urllib3.Timeout(METADATA_TIMEOUT_SECONDS), retries=False)


def _base_url(bucket: str, endpoint: str | None, region: str) -> str:
    """With an endpoint by path. On AWS by host name, unless dots in the name would not match the certificate."""
    if endpoint:
        return f"{endpoint}/{bucket}"
    domain = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    return f"https://{domain}/{bucket}" if "." in bucket else f"https://{bucket}.{domain}"


def _size_of(body: bytes | BinaryIO) -> int:
    return len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
