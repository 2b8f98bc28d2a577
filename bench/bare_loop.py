"""The bare loop: processes over a shared list of files, with convertq's own gateway call and atomic write, no queue.

python -m bench.bare_loop WORKERS      # the environment is that of a worker; it stays until it is ended
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.sharedctypes import Synchronized
from uuid import UUID

from convertq.worker.attempt import Attempt
from convertq.worker.config import Config, read_config
from convertq.worker.files import Files, discard, put_in_place
from convertq.worker.gateway_client import GatewayClient, route_to_gateway
from convertq.worker.job import Job

from bench.documents import PDF_BYTES


def work(config: Config, names: list[str], place: Synchronized[int]) -> None:
    client, files = GatewayClient(config, route_to_gateway(config)), Files(config.uploads_dir, config.results_dir)
    while True:
        with place.get_lock():
            number, place.value = place.value, place.value + 1
        if number >= len(names):
            return
        convert(client, files, UUID(names[number].removesuffix(".pdf")))


def convert(client: GatewayClient, files: Files, job_id: UUID) -> None:
    """What a worker does between its claim and its completion."""
    job = Job(job_id, "bench/1", 1, "pt_simon_invoice_v1", True, PDF_BYTES, False, 0)
    attempt = Attempt(client, files, job)
    attempt.convert()
    put_in_place(attempt.paths.part, attempt.paths.result)
    discard(attempt.paths.part)


def main() -> None:
    config = read_config(os.environ, needs_gateway=True)
    names = sorted(os.listdir(config.uploads_dir))  # noqa: PTH208
    place: Synchronized[int] = multiprocessing.Value("i", 0)
    workers = [multiprocessing.Process(target=work, args=(config, names, place)) for _ in range(int(sys.argv[1]))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    signal.pause()  # its CPU time is read while it lives


if __name__ == "__main__":
    main()
