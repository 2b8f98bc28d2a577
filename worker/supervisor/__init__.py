"""The parent process: it forks workers, replaces dead ones and keeps the row in `servers`."""
