"""An embedded PostgreSQL, and what runs on it: the demo, `convertq up` and `convertq convert`."""
