"""PgQueuer: an entrypoint whose blocking work is done in a thread, as PgQueuer asks: its heartbeats need the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.peers import work

opened: list[Queries] = []


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """What `pgq run` runs: one direct connection, as its documentation advises for a worker, and one thread.

    Of everybody as many processes are started as jobs are to be under way.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    yield await queue_for(convert)


@asynccontextmanager
async def blocking() -> AsyncIterator[PgQueuer]:
    """Faster, and no way to run it: while a job is done nothing beats for the others of its batch."""
    yield await queue_for(convert_in_the_loop)


async def queue_for(entrypoint: Callable[[Job], Awaitable[None]]) -> PgQueuer:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["DATABASE_URL"])))
    queue.entrypoint("convert")(entrypoint)
    return queue


async def convert(job: Job) -> None:
    assert job.payload
    await asyncio.to_thread(work.convert, job.payload.decode())


async def convert_in_the_loop(job: Job) -> None:
    assert job.payload
    work.convert(job.payload.decode())


async def open_up() -> None:
    opened.append(Queries(AsyncpgDriver(await asyncpg.connect(os.environ["DATABASE_URL"]))))


async def prepare() -> None:
    """`pgq install` and `pgq autovac`: the first point of its checklist for performance."""
    await opened[0].install()
    await opened[0].optimize_autovacuum()


async def enqueue(ids: Sequence[str]) -> None:
    for first in range(0, len(ids), 1000):
        some = ids[first : first + 1000]
        await opened[0].enqueue(["convert"] * len(some), [job_id.encode() for job_id in some], [0] * len(some))


async def submit(job_id: str) -> None:
    await opened[0].enqueue("convert", job_id.encode())
