"""The credentials of the usual AWS chain, found again when they may have been replaced."""

from __future__ import annotations

import os
import time

import urllib3
from convertq.queue.errors import StorageError
from minio.credentials.credentials import Credentials
from minio.credentials.providers import AWSConfigProvider, ChainedProvider, EnvAWSProvider, IamAwsProvider, Provider
from urllib3.exceptions import HTTPError

METADATA_TIMEOUT_SECONDS = 2.0  # for the service that gives an instance its credentials
#: A file of credentials may be replaced by another program at any time, and reading it costs as much as a request.
KEEP_SECONDS = 10.0


class CurrentCredentials:
    def __init__(self, provider: Provider | None) -> None:
        """Without a provider, the credentials come from the environment, a file, or the instance's own service."""
        self._provider = provider
        self._found: Credentials | None = None
        self._until = 0.0
        self._owner = 0  # the process that has found them

    def get(self) -> Credentials:
        """Raises StorageError."""
        now = time.monotonic()
        if self._found is None or now >= self._until or self._owner != os.getpid():
            self._found, self._until, self._owner = self._find(), now + KEEP_SECONDS, os.getpid()
        return self._found

    def are_replaced(self, refused: Credentials) -> bool:
        """After the storage has refused them: whether there are others by now, which the next request uses."""
        self._found = None
        found = self.get()
        return (found.access_key, found.secret_key, found.session_token) != (
            refused.access_key, refused.secret_key, refused.session_token,
        )  # fmt: skip

    def _find(self) -> Credentials:
        """The chain is made again each time: it would keep what it has found, also when that was replaced."""
        try:
            if self._provider is not None:
                return self._provider.retrieve()
            pool = urllib3.PoolManager(timeout=urllib3.Timeout(METADATA_TIMEOUT_SECONDS), retries=False)
            instance = IamAwsProvider(http_client=pool)
            return ChainedProvider([EnvAWSProvider(), AWSConfigProvider(), instance]).retrieve()
        except (ValueError, OSError, HTTPError):
            reason = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise StorageError(reason) from None
