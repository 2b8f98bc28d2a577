"""PgQueuer: an entrypoint on aiohttp, and one that does the whole job where the event loop runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries

from bench.peers import async_work, work

opened: list[Queries] = []


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """What `pgq run` runs, with as many jobs under way as its share of N.

    The limit is a semaphore of the process: PgQueuer's own `concurrency_limit` is kept in the database and costs more.
    """
    places = asyncio.Semaphore(int(os.environ["CONCURRENCY"]))

    async def convert(job: Job) -> None:
        assert job.payload
        async with places:
            await async_work.convert(job.payload.decode())

    yield await queue_for(convert)


@asynccontextmanager
async def blocking() -> AsyncIterator[PgQueuer]:
    """While a job is done, no heartbeat is sent for the others of its batch."""

    async def convert(job: Job) -> None:
        assert job.payload
        work.convert(job.payload.decode())

    yield await queue_for(convert)


async def queue_for(entrypoint: Callable[[Job], Awaitable[None]]) -> PgQueuer:
    """One direct connection, as PgQueuer's documentation advises for a worker."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["DATABASE_URL"])))
    queue.entrypoint("convert")(entrypoint)
    return queue


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
