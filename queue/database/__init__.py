"""The connection to PostgreSQL: bounded in time, reconnecting, and running statements by name."""
