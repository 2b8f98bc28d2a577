"""An embedded PostgreSQL, and the demo that runs on it."""
