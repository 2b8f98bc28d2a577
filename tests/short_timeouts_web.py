"""`convertq web run` with short limits: what takes half a minute takes two seconds, and all else is the same."""

from __future__ import annotations

from convertq.web.gevent_setup import patch_for_gevent

patch_for_gevent()

from convertq.cli.main import main  # noqa: E402
from convertq.web import request_limits, server  # noqa: E402

request_limits.SOCKET_TIMEOUT_SECONDS = 2.0
request_limits.BODY_SECONDS, request_limits.MIN_BYTES_PER_SECOND = 2.0, 10**6
server.KEEP_ALIVE_SECONDS = 2
server.CONNECTIONS = 100

if __name__ == "__main__":
    main()
