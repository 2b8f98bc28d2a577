"""`convertq web run` on a disk that takes a second for each fsync."""

from __future__ import annotations

from typing import Any

from convertq.web import gevent_setup

gevent_setup.patch_for_gevent()

from convertq.cli.main import main  # noqa: E402
from gevent import monkey  # noqa: E402

_sleep, _fsync = monkey.get_original("time", "sleep"), gevent_setup._fsync


def slow_fsync(fd: Any) -> None:
    _sleep(1)
    _fsync(fd)


gevent_setup._fsync = slow_fsync

if __name__ == "__main__":
    main()
