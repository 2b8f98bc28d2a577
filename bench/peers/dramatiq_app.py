"""dramatiq on Redis: a synchronous actor."""

from __future__ import annotations

import os
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers import work

dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"]))
convert = dramatiq.actor(work.convert, actor_name="convert", queue_name="convert")


async def open_up() -> None: ...


async def prepare() -> None: ...


async def enqueue(ids: Sequence[str]) -> None:
    for job_id in ids:
        convert.send(job_id)


async def submit(job_id: str) -> None:
    convert.send(job_id)
