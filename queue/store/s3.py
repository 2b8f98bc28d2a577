"""The store in a bucket of S3-compatible storage. Temporary files are in the two directories of this host."""

from __future__ import annotations

import errno
import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from convertq.queue.config import Config
from convertq.queue.doctor.finding import Finding
from convertq.queue.errors import StorageError
from convertq.queue.job import ClaimedJob
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.directory import DirectoryStore
from convertq.queue.store.protocol import JobId, OpenResult, OpenSource, Removed, StoredFile
from convertq.queue.store.s3_availability import Availability
from convertq.queue.store.s3_bucket import Bucket, ListedObject
from convertq.queue.store.s3_checks import check_storage
from convertq.queue.store.s3_client import S3Client
from convertq.queue.store.s3_keys import Keys
from convertq.queue.store.s3_reader import ObjectReader
from convertq.queue.store.s3_removal import remove_objects
from convertq.queue.store.s3_result import CONTENT_TYPE, S3Result
from convertq.queue.store.s3_source import S3Source

#: A larger source is copied to a temporary file before it is sent to the gateway.
MEMORY_BYTES = 1 << 20
COPY_BYTES = 256 * 1024
READ_BUFFER_BYTES = 64 * 1024
REQUEST_THREADS = 16
PRESIGNED_SECONDS = 300


class S3Store:
    is_remote = True

    def __init__(self, url: StorageUrl, config: Config, temporary: DirectoryStore) -> None:
        self._temporary = temporary
        self._bucket = Bucket(S3Client(url, config.s3_endpoint_url, config.s3_region))
        self._keys = Keys(url)
        self._availability = Availability(self._bucket, self._keys, str(temporary.results))
        self._presigns, self._public_endpoint = config.s3_presigned_downloads, config.s3_public_endpoint_url

    # -- the store as a whole --

    def make_ready(self) -> None:
        self._temporary.make_ready()

    def require(self) -> None:
        self._temporary.require()
        self._bucket.require()

    def prepare_workers(self) -> None:
        self._availability.require_probe()

    def reason_to_pause(self) -> str:
        return self._temporary.reason_to_pause() or self._availability.reason_to_pause()

    def is_working(self) -> bool:
        return self._availability.is_working()

    @property
    def bytes_moved(self) -> int:
        return self._bucket.client.bytes_moved

    def abort_transfers(self) -> None:
        self._bucket.client.abort()

    def permit_transfers(self) -> None:
        self._bucket.client.permit()

    def check_access(self) -> list[Finding]:
        return [*self._temporary.check_access(), *check_storage(self._bucket, self._keys)]

    def check_space(self) -> Finding:
        return self._temporary.check_space()

    # -- sources --

    def new_source(self, job_id: UUID) -> S3Source:
        return S3Source(self._bucket, self._keys, str(self._temporary.uploads), job_id)

    def source_location(self, job_id: UUID) -> str:
        return self._location(self._keys.source(job_id))

    def has_source(self, job_id: UUID) -> bool:
        return self._bucket.head(self._keys.source(job_id)) is not None

    def find_sources(self, ids: Sequence[UUID]) -> list[UUID]:
        if len(ids) < 2:
            return [job_id for job_id in ids if self.has_source(job_id)]
        with ThreadPoolExecutor(REQUEST_THREADS) as threads:
            return [job_id for job_id, found in zip(ids, threads.map(self.has_source, ids), strict=True) if found]

    def open_source(self, job_id: JobId) -> OpenSource:
        """It is read whole before the gateway is called: an error of the storage is none of the gateway's."""
        key = self._keys.source(job_id)
        answer = self._bucket.get(key)
        size, sha256 = answer.size, answer.sha256
        with ObjectReader(self._bucket, key, size, answer.etag, answer) as reader:
            if size <= MEMORY_BYTES:
                content = reader.readall()
                _check_content(len(content), size, sha256, lambda: hashlib.sha256(content).hexdigest())
                return OpenSource(io.BytesIO(content), size)
            return OpenSource(self._copy_to_disk(reader, size, sha256), size)

    def _copy_to_disk(self, reader: ObjectReader, size: int, sha256: str) -> BinaryIO:
        file = open_unnamed(self._temporary.uploads)
        try:
            digest = copy_and_hash(reader, file)
            _check_content(file.tell(), size, sha256, lambda: digest)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    # -- results: a location counts only if it has the form of a key of this job --

    def new_result(self, job: ClaimedJob) -> S3Result:
        temporary = self._temporary.temporary_location(job.name, job.attempt, job.holder)
        return S3Result(self._bucket, self._keys, job, temporary)

    def result_location(self, job_id: UUID, recorded: str) -> str:
        """What is not a key of this job is left alone: nothing has an empty location."""
        return recorded if self._keys.result_key_of(job_id, recorded) else ""

    def has_result(self, job_id: UUID, location: str | None) -> bool:
        key = self._keys.result_key_of(job_id, location)
        return key is not None and self._bucket.head(key) is not None

    def open_result(self, job_id: UUID, location: str | None) -> OpenResult:
        key = self._keys.result_key_of(job_id, location)
        found = self._bucket.head(key) if key else None
        if key is None or found is None:
            raise FileNotFoundError(errno.ENOENT, "the storage has no such result")
        reader = ObjectReader(self._bucket, key, found.size, found.etag)
        return OpenResult(io.BufferedReader(reader, READ_BUFFER_BYTES), found.size, found.sha256 or found.etag)

    def sync_results(self) -> None:
        """An object is durable once its upload is answered."""

    def presign_result(self, job_id: UUID, location: str | None, name: str) -> str | None:
        if not self._presigns:
            return None
        key = self._keys.result_key_of(job_id, location)
        if key is None or self._bucket.head(key) is None:
            raise FileNotFoundError(errno.ENOENT, "the storage has no such result")
        query = {"response-content-disposition": name, "response-content-type": CONTENT_TYPE}
        return self._bucket.client.presign_get(key, query, PRESIGNED_SECONDS, self._public_endpoint)

    def remove_result(self, job_id: UUID) -> None:
        """Nothing is in the way of the next run, which has other keys; but of a job that is gone nothing may stay."""
        self.remove([self._location(self._keys.results_of(job_id))])

    # -- temporary files --

    def discard_temporary_file(self, job_id: JobId, attempt: int, holder: str) -> None:
        self._temporary.discard_temporary_file(job_id, attempt, holder)

    def list_temporary_results(self) -> Iterator[StoredFile]:
        return self._temporary.list_temporary_results()

    def is_held_by(self, file: StoredFile, holder: str) -> bool:
        return self._temporary.is_held_by(file, holder)

    # -- retention --

    def list_sources(self) -> Iterator[StoredFile]:
        for found in self._bucket.list_objects(self._keys.sources):
            if job_id := self._keys.read_source(found.key):
                yield self._stored_file(found, job_id)

    def list_results(self) -> Iterator[StoredFile]:
        for found in self._bucket.list_objects(self._keys.results):
            if result := self._keys.read_result(found.key):
                yield self._stored_file(found, UUID(result.job_id))

    def list_temporary_files(self) -> Iterator[StoredFile]:
        """Besides those on this host: probes that were not deleted, and unfinished multipart uploads."""
        yield from self._temporary.list_temporary_files()
        for found in self._bucket.list_objects(self._keys.probes):
            if probe_id := self._keys.read_probe(found.key):
                yield self._stored_file(found, probe_id)
        for found in self._bucket.list_uploads(self._bucket.url.prefix):
            result = self._keys.read_result(found.key)
            if job_id := UUID(result.job_id) if result else self._keys.read_source(found.key):
                yield self._stored_file(found, job_id)

    def job_locations(self, job_id: UUID, attempt: int, holder: str | None) -> list[str]:
        """The results of all runs and attempts are named by what their keys begin with."""
        temporary = [self._temporary.temporary_location(job_id, attempt, holder)] if holder else []
        return [self.source_location(job_id), self._location(self._keys.results_of(job_id)), *temporary]

    def remove(self, locations: Sequence[str], *, dry_run: bool = False) -> list[Removed]:
        on_host = [location for location in locations if location.startswith("/")]
        removed = dict(zip(on_host, self._temporary.remove(on_host, dry_run=dry_run), strict=True))
        others = [location for location in locations if location not in removed]
        removed |= remove_objects(self._bucket, self._keys, others, dry_run=dry_run)
        return [removed[location] for location in locations]

    def _location(self, key: str) -> str:
        return self._bucket.url.location_of(key)

    def _stored_file(self, found: ListedObject, job_id: UUID) -> StoredFile:
        upload = f"?uploadId={found.upload_id}" if found.upload_id else ""
        return StoredFile(f"{self._location(found.key)}{upload}", job_id, found.written_at, found.age_seconds)


def open_unnamed(directory: Path) -> BinaryIO:
    """A temporary file that is gone when it is closed, however that happens."""
    file: BinaryIO = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
    return file


def copy_and_hash(reader: ObjectReader, file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := reader.read(COPY_BYTES):
        digest.update(piece)
        file.write(piece)
    return digest.hexdigest()


def _check_content(found: int, size: int, sha256: str, hash_content: Callable[[], str]) -> None:
    """Another program may have stored it without its hash."""
    if found != size:
        raise StorageError("the source arrived incomplete")
    if sha256 and hash_content() != sha256:
        raise StorageError("the source arrived with another content than it was stored with")
