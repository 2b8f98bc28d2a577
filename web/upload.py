"""An upload: its file goes straight to disk and becomes a job; memory does not grow with it."""

from __future__ import annotations

import re
from typing import Protocol

from convertq.web.context import web
from convertq.web.form import OVERHEAD, Body, Form, too_large
from convertq.web.refusal import Refusal
from convertq.worker.errors import DISK_FULL, Code
from convertq.worker.submission import How, Intake, Order, Received, Submission, Submitter, TooManyActive
from flask import Request

PRIORITY = range(-100, 101)


def receive_upload(request: Request, owner: str) -> Submission:
    """Reads, stores and records the form's file as a job of `owner`. A refused file raises its Refusal."""
    limit = web().config.max_upload_bytes
    if (request.content_length or 0) > limit + OVERHEAD:
        raise too_large(limit)
    _refuse_when_full(owner)
    form = Form(
        Body(request.environ["wsgi.input"], limit, request.content_length), request.headers.get("Content-Type", "")
    )
    try:
        with Intake(web().files, web().config).receive(form) as received:
            form.read_rest()
            return record(form, received, owner)
    except OSError as error:
        raise not_stored(error) from error


class Part(Protocol):
    """A file in a form, and the fields that stand around it."""

    @property
    def filename(self) -> str | None: ...

    @property
    def fields(self) -> dict[str, bytearray]: ...


def record(part: Part, received: Received, owner: str) -> Submission:
    order = _order(part.fields, owner)
    try:
        with web().connections.session() as database:
            done = Submitter(database, web().files, web().config).record(received, part.filename or "", order)
    except TooManyActive:
        raise _full() from None
    if done.how is How.REFUSED:
        status = 413 if done.code is Code.TOO_LARGE else 400
        raise Refusal(status, done.message or "the file is refused", done.code or Code.UNKNOWN)
    return done


def _order(fields: dict[str, bytearray], owner: str) -> Order:
    given = {name: bytes(value).decode("utf-8", "replace").strip() for name, value in fields.items()}
    allowed = web().config.mappings_allowed
    mapping = given.get("mapping") or allowed[0]
    if mapping not in allowed:
        raise Refusal(422, f"unknown mapping: {', '.join(allowed)} can be asked for", Code.GW_4XX)
    return Order(owner, mapping, _pretty(given), _priority(given), max_active=web().config.session_max_active)


def _pretty(given: dict[str, str]) -> bool:
    text = (given.get("pretty") or "1").lower()
    if text not in ("1", "0", "true", "false"):
        raise Refusal(422, "pretty is 1 or 0")
    return text in ("1", "true")


def _priority(given: dict[str, str]) -> int:
    """Bounded: a visitor must not get ahead of what an operator has put first."""
    text = given.get("priority") or "0"
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text) or int(text) not in PRIORITY:
        raise Refusal(422, f"priority is a whole number from {PRIORITY[0]} to {PRIORITY[-1]}")
    return int(text)


def _refuse_when_full(owner: str) -> None:
    """Before the body is read: who may not add a job need not send it."""
    with web().connections.transaction() as database:
        if database.run("count_active_jobs", owner=owner)[0]["active"] >= web().config.session_max_active:
            raise _full()


def _full() -> Refusal:
    limit = web().config.session_max_active
    return Refusal(
        429, f"you have {limit} unfinished jobs, and no more are taken until one is done", headers={"Retry-After": "10"}
    )


def not_stored(error: OSError) -> Refusal:
    reason = "the disk is full" if error.errno in DISK_FULL else "the disk refused it"
    return Refusal(507, f"the file could not be stored: {reason}", Code.IO_ERROR)
