"""The HTTP client of the conversion gateway."""
