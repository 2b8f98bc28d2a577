"""The documents of every contender: the same 20 KB PDF under each job's id, the 2 KB of XML that must come of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

PDF_BYTES = 20_000
XML_BYTES = 2_048
LINKS = 20_000  # of one file: file systems allow from 32,000 (ext3) up

_HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n<invoice job="'
_LINE = b"  <line><text>Caf\xc3\xa9 e p\xc3\xa3o de centeio</text><amount>12.50</amount></line>\n"


def _tail() -> bytes:
    room = XML_BYTES - len(_HEAD) - 36 - len(b'">\n') - len(b"</invoice>\n")
    lines = _LINE * (room // len(_LINE))
    return b'">\n' + lines + b" " * (room - len(lines)) + b"</invoice>\n"


_TAIL = _tail()


def answer(job_id: bytes) -> bytes:
    """What the gateway makes of a job: it has the id in it, so that a file under another's name is found out."""
    return _HEAD + job_id + _TAIL


def lay_out(uploads: Path, jobs: int) -> list[UUID]:
    """New ids, each with its PDF; links, so that a round does not begin with 100 MB to write back."""
    ids = [uuid4() for _ in range(jobs)]
    for first in range(0, jobs, LINKS):
        source = uploads / f"{first}.source"
        source.write_bytes(b"%PDF-1.7\n" + os.urandom(PDF_BYTES - 15) + b"%%EOF\n")
        for job_id in ids[first : first + LINKS]:
            os.link(source, uploads / f"{job_id}.pdf")
        source.unlink()
    return ids


class WrongWork(Exception):
    """A contender did not do what its figures would claim."""


def check(ids: Sequence[UUID], requests: Iterable[str], results: Path) -> None:
    """Every job made exactly one request and left exactly one right file, and there is nothing else."""
    wanted = sorted(map(str, ids))
    if (asked := sorted(requests)) != wanted:
        raise WrongWork(f"{len(asked)} requests for {len(set(asked))} jobs, not one for each of {len(wanted)}")
    if (names := sorted(os.listdir(results))) != [f"{job_id}.xml" for job_id in wanted]:  # noqa: PTH208
        raise WrongWork(f"{len(names)} files, not one result for each of {len(wanted)} jobs")
    for job_id in wanted:
        if (results / f"{job_id}.xml").read_bytes() != answer(job_id.encode()):
            raise WrongWork(f"{job_id}.xml is not what the gateway answered")
