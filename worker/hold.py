"""Why this host must not claim: its disk. What cannot be written here stays queued, for another host or for later."""

from __future__ import annotations

import os

from convertq.worker.config import Config


def reason_to_hold(config: Config) -> str:
    """Empty when there is none. Asked before every claim: two system calls."""
    if not os.path.isdir(config.uploads_dir):  # noqa: PTH112
        return "the upload directory is not there"
    try:
        space = os.statvfs(config.results_dir)
    except OSError as error:
        return f"the result directory is not usable: {(error.strerror or '').lower()}"
    if space.f_flag & os.ST_RDONLY:
        return "the result directory is read-only"
    if space.f_bavail * space.f_frsize < config.results_min_free_mb * 1024 * 1024:
        return f"less than {config.results_min_free_mb} MB free in the result directory"
    return ""
