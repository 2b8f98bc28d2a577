"""Procrastinate: an asynchronous task, on uvloop."""

from __future__ import annotations

import os
from collections.abc import Sequence

import procrastinate

from bench.peers import async_work

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))
convert = app.task(async_work.convert, name="convert")


async def open_up() -> None:
    await app.open_async()


async def prepare() -> None:
    await app.schema_manager.apply_schema_async()


async def enqueue(ids: Sequence[str]) -> None:
    await convert.batch_defer_async(*({"job_id": job_id} for job_id in ids))


async def submit(job_id: str) -> None:
    await convert.defer_async(job_id=job_id)


async def work() -> None:
    await app.run_worker_async(concurrency=int(os.environ["CONCURRENCY"]))
