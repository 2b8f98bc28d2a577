"""Where the files of jobs are kept. Nothing outside this folder knows a path: callers know ids and opaque locations."""

from __future__ import annotations

from convertq.queue.config import Config
from convertq.queue.store.directory import DirectoryStore
from convertq.queue.store.protocol import Store


def open_store(config: Config) -> Store:
    """The store that the configuration names. It opens nothing yet, and may be made before a fork."""
    return DirectoryStore(config.uploads_dir, config.results_dir, config.results_min_free_mb)
