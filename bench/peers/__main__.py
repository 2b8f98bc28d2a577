"""What the benchmark asks of a peer besides work, in the peer's own environment; ids come on stdin, one a line.

    python -m bench.peers procrastinate|pgqueuer prepare|enqueue|submit

`submit` hands in each job as its id arrives, and prints the monotonic time just before.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time


async def run(peer: str, verb: str) -> None:
    app = importlib.import_module(f"bench.peers.{peer}_app")
    await app.open_up()
    if verb == "prepare":
        await app.prepare()
    elif verb == "enqueue":
        await app.enqueue(sys.stdin.read().split())
    else:
        while line := await asyncio.to_thread(sys.stdin.readline):
            before = time.monotonic()
            await app.submit(line.strip())
            print(f"{before:.6f}", flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2]))
