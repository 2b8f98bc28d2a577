"""What the benchmark needs of a peer, in the peer's own environment; ids come on stdin, one on each line.

    python -m bench.peers procrastinate|pgqueuer|dramatiq prepare|enqueue|submit|work

`submit` submits each job as its id arrives, and prints the monotonic time just before. `work` is for a peer whose own
command has no way to run on uvloop.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time

import uvloop


async def run(peer: str, verb: str) -> None:
    app = importlib.import_module(f"bench.peers.{peer}_app")
    await app.open_up()
    if verb in ("prepare", "work"):
        await getattr(app, verb)()
    elif verb == "enqueue":
        await app.enqueue(sys.stdin.read().split())
    else:
        while line := await asyncio.to_thread(sys.stdin.readline):
            before = time.monotonic()
            await app.submit(line.strip())
            print(f"{before:.6f}", flush=True)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2]))
