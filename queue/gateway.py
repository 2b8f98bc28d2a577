"""A gateway and how it is spoken to, as GATEWAYS_FILE describes it."""

from __future__ import annotations

import hashlib
import json
import re
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from convertq.queue.setting import gateway_url, label, url_path

#: The gateway that GATEWAY_URL and MAPPINGS_ALLOWED describe.
DEFAULT_GATEWAY = "default"
#: Every mapping that no server has declared, in the table `mapping_routes`.
ANY_MAPPING = "*"
#: Form fields by name. A value may name an option of the job in braces.
DEFAULT_FIELDS: Mapping[str, str] = MappingProxyType({"mapping": "{mapping}", "pretty": "{pretty}"})
OPTIONS = ("mapping", "pretty")
NAME = re.compile(r"[a-z0-9_-]{1,32}")
RESERVED = ("llm",)
MAX_CALLS = 10_000
#: A limit that adapts to what the gateway can bear: `max_calls = "auto"`.
AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class Gateway:
    name: str
    url: str = field(repr=False)  # may hold credentials
    mappings: tuple[str, ...]
    timeout_ms: int | None = None  # None: GATEWAY_TIMEOUT_MS
    max_calls: int | Literal["auto"] = 0  # simultaneous calls of the whole cluster; 0: no limit
    path: str = "/process"
    file_field: str = "file"
    fields: Mapping[str, str] = field(default_factory=lambda: DEFAULT_FIELDS)
    accept: str = "application/xml"
    health_path: str | None = None  # None: GATEWAY_HEALTH_PATH
    busy_status: tuple[int, ...] = ()

    @property
    def is_adaptive(self) -> bool:
        return self.max_calls == AUTO

    @property
    def declared(self) -> dict[str, Any]:
        """What the supervisor's row in `servers` says of it. Code that knows no adaptive limit reads max_calls."""
        fixed = {"max_calls": 0, "is_auto": True} if self.is_adaptive else {"max_calls": self.max_calls}
        return {"name": self.name, "mappings": list(self.mappings), **fixed}


class UnknownGateway(Exception):
    """One line: the name, and those that exist."""


def require_gateway(name: str | None, known: Sequence[str]) -> None:
    """Raises UnknownGateway; None stands for all of them."""
    if name is not None and name not in known:
        raise UnknownGateway(f"there is no gateway {name!r}; known: {', '.join(known)}")


def digest_of(gateways: Iterable[Gateway]) -> str:
    """The same for two hosts exactly if their files mean the same."""
    described = [{**vars(gateway), "fields": dict(gateway.fields)} for gateway in gateways]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def read_gateways_file(text: str) -> tuple[Gateway, ...]:
    """The gateways of a file, in its order. Raises ValueError with what is wrong and where."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be the absolute path of a TOML file")
    try:
        content = tomllib.loads(Path(text).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot be read: {(error.strerror or 'unknown error').lower()}") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from None
    return read_gateways(content)


def read_gateways(content: Mapping[str, Any]) -> tuple[Gateway, ...]:
    if unknown := sorted(set(content) - {"gateways"}):
        raise ValueError(f"unknown key {unknown[0]!r}: everything belongs into [gateways.NAME]")
    tables = content.get("gateways")
    if not isinstance(tables, dict) or not tables:
        raise ValueError("must have at least one table [gateways.NAME]")
    gateways = tuple(_read_gateway(name, table) for name, table in tables.items())
    owners: dict[str, str] = {}
    for gateway in gateways:
        for mapping in gateway.mappings:
            if mapping in owners:
                raise ValueError(f"the mapping {mapping!r} is named twice: by {owners[mapping]} and {gateway.name}")
            owners[mapping] = gateway.name
    return gateways


def _read_gateway(name: str, table: Any) -> Gateway:
    if not NAME.fullmatch(name) or name in RESERVED:
        raise ValueError(f"gateway {name[:40]!r}: its name must be 1 to 32 of a-z, 0-9, _ and -, and not llm")
    if not isinstance(table, dict):
        raise ValueError(f"gateway {name}: must be a table [gateways.{name}]")
    if unknown := sorted(set(table) - set(KEYS)):
        raise ValueError(f"gateway {name}: unknown key {unknown[0]!r}: allowed are {', '.join(KEYS)}")
    if missing := [key for key in ("url", "mappings") if key not in table]:
        raise ValueError(f"gateway {name}: {missing[0]} is missing")
    values: dict[str, Any] = {}
    for key, value in table.items():
        try:
            values[key] = KEYS[key](value)
        except ValueError as error:
            raise ValueError(f"gateway {name}: {key} {error}") from None
    return Gateway(name, **values)


# Each reader returns the value, or raises ValueError with what is allowed.


def _text(read: Callable[[str], str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        return read(value)

    return check


def _whole(minimum: int, maximum: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}")
        return value

    return check


def _limit(value: Any) -> int | Literal["auto"]:
    if value == AUTO:
        return AUTO
    try:
        return _whole(0, MAX_CALLS)(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {AUTO!r}") from None


def _mappings(value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not is_list or any(not name.strip() or name == ANY_MAPPING or not name.isprintable() for name in value):
        raise ValueError("must be a list of at least one name")
    if len(set(value)) < len(value):
        raise ValueError(f"names {next(name for name in value if value.count(name) > 1)!r} twice")
    return tuple(value)


def _fields(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("must be a table of strings")
    for name, text in value.items():
        _form_name(name)
        if "\r" in text or "\n" in text or not _names_options(text):
            raise ValueError(f"has {text[:40]!r}: it may name {{mapping}} and {{pretty}}, and a brace itself is {{{{")
    return MappingProxyType(dict(value))


def _names_options(text: str) -> bool:
    try:
        found = list(string.Formatter().parse(text))
    except ValueError:
        return False
    return all(name is None or (name in OPTIONS and not spec and not how) for _, name, spec, how in found)


def _form_name(text: str) -> str:
    if not text or not text.isprintable() or '"' in text:
        raise ValueError("must be the name of a form field, without quotation marks")
    return text


def _header(text: str) -> str:
    if not text or not text.isascii() or not label(text):
        raise ValueError("must be a media type such as application/xml")
    return text


def _statuses(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list of HTTP status codes, such as [429, 503]")
    try:
        return tuple(_whole(300, 599)(status) for status in value)
    except ValueError:
        raise ValueError("must be a list of HTTP status codes from 300 to 599") from None


#: key in the file -> its reader; docs/configuration.md explains them
KEYS: dict[str, Callable[[Any], Any]] = {
    "url": _text(gateway_url),
    "mappings": _mappings,
    "timeout_ms": _whole(1, 2**31 - 1),
    "max_calls": _limit,
    "path": _text(url_path),
    "file_field": _text(_form_name),
    "fields": _fields,
    "accept": _text(_header),
    "health_path": _text(url_path),
    "busy_status": _statuses,
}
