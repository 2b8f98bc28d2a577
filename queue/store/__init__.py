"""Where the files of jobs are kept. Nothing outside this folder knows a path: callers know ids and opaque locations."""

from __future__ import annotations

from convertq.queue.config import Config
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.directory import DirectoryStore
from convertq.queue.store.protocol import Store


def open_store(config: Config) -> Store:
    """The store that the configuration names. It opens nothing yet, and may be made before a fork."""
    if config.storage_url is None and config.storage_read_url is None:
        return open_directories(config)
    from convertq.queue.store.two_places import TwoPlaces

    urls = config.storage_url, config.storage_read_url if config.storage_read_url != config.storage_url else None
    first, second = (open_one_store(url, config) for url in urls)
    return TwoPlaces(first, second, (_start_of(urls[0]), _start_of(urls[1])))


def open_one_store(url: StorageUrl | None, config: Config) -> Store:
    """The bucket, or without a URL the directories, and nothing else."""
    if url is None:
        return open_directories(config)
    from convertq.queue.store.s3 import S3Store  # needs convertq[s3]

    return S3Store(url, config, open_directories(config))


def open_directories(config: Config) -> DirectoryStore:
    return DirectoryStore(config.uploads_dir, config.results_dir, config.results_min_free_mb)


def _start_of(url: StorageUrl | None) -> str:
    return "/" if url is None else str(url)
