"""Makes this process cooperative: each request runs in a greenlet of gevent, and every wait serves other requests.

Only `convertq web run` calls this. The worker and the other commands use real threads and blocking calls.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

from gevent import monkey
from gevent.threadpool import ThreadPool

DISK_THREADS = 32
_fsync = os.fsync


def patch_for_gevent() -> None:
    """Must run before psycopg is imported: psycopg decides at import whether it waits in C or cooperatively."""
    if not monkey.is_module_patched("select") and "psycopg" in sys.modules:
        raise RuntimeError("psycopg was imported before patch_for_gevent")
    monkey.patch_all()
    os.fsync = fsync_in_thread


def fsync_in_thread(fd: Any) -> None:
    """A disk may need seconds for an fsync. A thread waits for it, so that this process can serve other requests."""
    _disk_threads().apply(_fsync, (fd,))


@lru_cache(maxsize=1)
def _disk_threads() -> ThreadPool:
    """A pool besides gevent's own, which has only ten threads and also resolves host names."""
    return ThreadPool(DISK_THREADS)
