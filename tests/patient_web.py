"""`convertq web run` that waits a minute for the rest of a request, and not five seconds: all else is the same."""

from __future__ import annotations

from convertq.web.gevent_setup import patch_for_gevent

patch_for_gevent()

from convertq.cli.main import main  # noqa: E402
from convertq.web import server  # noqa: E402

server.KEEP_ALIVE_SECONDS = 60

if __name__ == "__main__":
    main()
