"""Log lines for journald, for a terminal and for a shared file."""
