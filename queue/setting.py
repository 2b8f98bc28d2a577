"""One setting, and the readers of its values: numbers, paths, names, URLs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Setting:
    variable: str
    read: Callable[[str], Any]
    default: str | None  # None: there is no default
    about: str = field(kw_only=True)  # one or two sentences, for the documents
    secret: bool = False  # A URL is shown without its password; a token is not shown.
    unset: str = ""  # what holds without a default, for the documents

    @property
    def attribute(self) -> str:
        return "database" if self.variable == "DATABASE_URL" else self.variable.lower()


# Each reader returns the value, or raises ValueError with what is allowed.


def whole_number(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,13}", text.strip()) or not minimum <= int(text) <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return int(text)

    return read


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise ValueError("must be a number over 0 and up to 1, such as 0.5")
    return value


def one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        for value in allowed:
            if text.lower() == value.lower():
                return value
        raise ValueError(f"must be one of {', '.join(allowed)}")

    return read


def absolute_path(text: str) -> Path:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path")
    return Path(text)


def label(text: str) -> str:
    if not text.isprintable() or len(text) > 100:
        raise ValueError("must be printable, at most 100 characters")
    return text


def names(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError("must be names, separated by commas")
    return found


def gateway_url(text: str) -> str:
    """The base of the gateway, without the trailing /process."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:  # its message would quote the credentials
        known = False
    if not known or parts.query or parts.fragment:
        raise ValueError("must be http://host:port or https://host:port")
    return text.rstrip("/").removesuffix("/process").rstrip("/")


def endpoint_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("must be http://host:port or https://host:port, without a path or credentials")
    return text.rstrip("/")


def region(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", text):
        raise ValueError("must be the name of a region, such as eu-west-1")
    return text


def switch(text: str) -> bool:
    if text.lower() not in ("0", "1", "false", "true"):
        raise ValueError("must be 1 or 0")
    return text.lower() in ("1", "true")


def token(text: str) -> str:
    if not re.fullmatch(r"[!-~]+", text):
        raise ValueError("must be printable ASCII without spaces, such as `openssl rand -hex 32` makes")
    return text


def url_path(text: str) -> str:
    if not text.startswith("/") or not text.isprintable() or " " in text:
        raise ValueError("must be a path that starts with /")
    return text


positive = whole_number(1)
zero_or_more = whole_number(0)
days = whole_number(0, 36500)
port = whole_number(1, 65535)
