"""The bare loop: processes over a shared list of files, with a gateway call and an atomic write, no queue.

python -m bench.bare_loop WORKERS CLIENT   # the environment is that of a worker; it stays until it is ended

The client is `convertq`, its own call and write, or `urllib3`, the job as the peers have it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from uuid import UUID

from convertq.queue.config import read_config
from convertq.queue.job import ClaimedJob
from convertq.queue.store import open_store
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.gateway.route import routes_to_gateways
from convertq.worker.loop.attempt import Attempt

from bench.documents import PDF_BYTES
from bench.peers import work as peers_work


def work(client: str, ids: list[str], place: Synchronized[int]) -> None:
    convert = CLIENTS[client]()
    while True:
        with place.get_lock():
            number, place.value = place.value, place.value + 1
        if number >= len(ids):
            return
        convert(ids[number])


def with_its_own_client() -> Callable[[str], None]:
    """What a worker does between its claim and its completion."""
    config = read_config(os.environ, needs_gateway=True)
    client, store = GatewayClient(routes_to_gateways(config)["default"]), open_store(config)

    def convert(job_id: str) -> None:
        job = ClaimedJob(UUID(job_id), "bench/1", 1, "pt_simon_invoice_v1", True, PDF_BYTES, False, 0)
        attempt = Attempt(client, store, job)
        attempt.convert()
        attempt.result.publish()
        store.sync_results()
        attempt.result.discard()

    return convert


CLIENTS: dict[str, Callable[[], Callable[[str], None]]] = {
    "convertq": with_its_own_client,
    "urllib3": lambda: peers_work.convert,
}


def run_and_stay(count: int, target: Callable[..., None], *arguments: object) -> None:
    workers = [multiprocessing.Process(target=target, args=arguments) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    signal.pause()  # their CPU time is read while it lives


def main() -> None:
    ids = [name.removesuffix(".pdf") for name in sorted(os.listdir(os.environ["UPLOADS_DIR"]))]  # noqa: PTH208
    run_and_stay(int(sys.argv[1]), work, sys.argv[2], ids, multiprocessing.Value("i", 0))


if __name__ == "__main__":
    main()
