"""What the storage answers when it does not do what was requested, in plain words with the remedy."""

from __future__ import annotations

import http.client
import re
import ssl
from dataclasses import dataclass

from convertq.queue.errors import StorageError
from convertq.queue.store.s3_answer import SlowTransfer, StorageAnswer
from urllib3 import exceptions

#: code of the storage -> what it means, and what to do
MEANINGS = {
    "AccessDenied": "access denied: the key needs the rights to read, write, list and delete",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set S3_REGION",
    "ExpiredToken": "the session token has expired: renew the credentials",
    "InvalidAccessKeyId": "the access key is unknown: check AWS_ACCESS_KEY_ID",
    "InvalidToken": "the session token is not valid: check AWS_SESSION_TOKEN",
    "NoSuchBucket": "the bucket does not exist: create it, or correct STORAGE_URL",
    "PermanentRedirect": "the bucket is in another region: set S3_REGION",
    "RequestTimeTooSkewed": "this host's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret key is wrong: check AWS_SECRET_ACCESS_KEY",
    "SlowDown": "too many requests: the storage asks to slow down",
}
#: for answers that name no code, such as those to HEAD
STATUS_CODES = {301: "PermanentRedirect", 307: "PermanentRedirect", 403: "AccessDenied"}
#: These answers may be different a moment later. 409 is a conflict of two writes at the same time.
TRANSIENT_STATUSES = frozenset({409, 429, 500, 502, 503, 504})
#: Those to HEAD name no code. An expired token is refused with 400.
CREDENTIAL_STATUSES = frozenset({400, 401, 403})
MAX_ERROR_BYTES = 64 * 1024
#: What a request may raise.
NETWORK_ERRORS = (exceptions.HTTPError, http.client.HTTPException, OSError)


@dataclass(frozen=True)
class Refusal:
    """An answer that is not a success."""

    status: int
    code: str

    @property
    def is_transient(self) -> bool:
        return self.status in TRANSIENT_STATUSES

    @property
    def is_about_credentials(self) -> bool:
        """Perhaps: others may be accepted."""
        return self.status in CREDENTIAL_STATUSES

    def as_error(self) -> StorageError:
        name = f" {self.code}" if self.code else ""
        return StorageError(f"{MEANINGS.get(self.code, 'the request failed')} ({self.status}{name})")


def read_refusal(answer: StorageAnswer) -> Refusal:
    body = b""
    while len(body) < MAX_ERROR_BYTES and (piece := answer.read(MAX_ERROR_BYTES)):
        body += piece
    answer.close()
    found = re.search(rb"<Code>([A-Za-z0-9]{1,60})</Code>", body)
    code = found[1].decode() if found else STATUS_CODES.get(answer.status, "")
    return Refusal(answer.status, code)


def is_timeout(error: Exception) -> bool:
    """urllib3 derives the error of a refused connection from that of a connection that took too long."""
    return isinstance(error, (exceptions.TimeoutError, TimeoutError)) and not isinstance(
        error, exceptions.NewConnectionError
    )


def network_error(error: Exception) -> StorageError:
    """The error itself is not shown: it quotes addresses and internals of the library."""
    match error:
        case exceptions.NameResolutionError():
            return StorageError("the name of the storage is unknown: check S3_ENDPOINT_URL")
        case exceptions.NewConnectionError():
            return StorageError("the storage cannot be reached: check S3_ENDPOINT_URL, and that it runs")
        case SlowTransfer():
            return StorageError("the storage sends or takes the file too slowly")
        case exceptions.TimeoutError() | TimeoutError():
            return StorageError("the storage did not answer in time")
        case ssl.SSLError():
            return StorageError("TLS or the certificate of the storage was refused")
    return StorageError("the storage closed the connection")
