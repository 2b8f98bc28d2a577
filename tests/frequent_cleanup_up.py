"""`convertq up` with a cleanup every second instead of every day, and all else the same."""

from __future__ import annotations

from convertq.cli.main import main
from convertq.embedded import cleanup

cleanup.FIRST_AFTER_SECONDS = cleanup.EVERY_SECONDS = 1.0

if __name__ == "__main__":
    main()
