"""The same job for a queue with an event loop: aiohttp for the gateway.

`FILES_IN=thread` writes the result in a thread, so that the loop never waits for the disk. `FILES_IN=loop` writes it
where the task runs, which costs less CPU.
"""

from __future__ import annotations

import asyncio
import os

import aiohttp

from bench.peers import work

FILES_IN_A_THREAD = os.environ.get("FILES_IN") == "thread"

opened: list[aiohttp.ClientSession] = []


async def convert(job_id: str) -> None:
    body, headers = work.request(job_id)
    async with session().post(work.GATEWAY, data=body, headers=headers) as answer:
        answer.raise_for_status()
        xml = await answer.read()
    if FILES_IN_A_THREAD:
        await asyncio.to_thread(work.keep, job_id, xml)
    else:
        work.keep(job_id, xml)


def session() -> aiohttp.ClientSession:
    """One for the process; it is made where the loop runs already."""
    if not opened:
        opened.append(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=180)))
    return opened[0]
