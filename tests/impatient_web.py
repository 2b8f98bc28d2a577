"""`convertq web run` with short patience: what takes half a minute takes a second, and all else is the same."""

from __future__ import annotations

from convertq.cli.main import main
from convertq.web import patient_worker, server

patient_worker.SILENCE = 1.0
patient_worker.HEADERS_WITHIN = 2.0
patient_worker.FIRST_SECONDS, patient_worker.SLOWEST = 1.0, 10**6
patient_worker.LAST_WORDS = 1.0
server.CONNECTIONS = 100

if __name__ == "__main__":
    main()
