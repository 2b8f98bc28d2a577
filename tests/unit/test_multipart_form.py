"""A file is stored byte for byte as it was sent, however its form is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from convertq.web.http_error import HttpError
from convertq.web.multipart_form import form_parts

TYPE = "multipart/form-data; boundary=xyz"
CONTENT = b"\r\n--xy\r\n--xyy\r\r\n-\n--"  # beginnings of a boundary, and no boundary
FORM = (
    b'--xyz\r\nContent-Disposition: form-data; name="mapping"\r\n\r\ntext_v1\r\n'
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n' + CONTENT + b"\r\n--xyz--\r\n"
)


@dataclass
class Body:
    sent: list[bytes]

    def pieces(self) -> Iterator[bytes]:
        return iter(self.sent)


def read_parts(*pieces: bytes) -> list[tuple[str, str | None, bytes]]:
    found = []
    for part in form_parts(Body([piece for piece in pieces if piece]), TYPE):
        found.append((part.name, part.filename, b"".join(iter(lambda part=part: part.read(5), b""))))  # type: ignore[misc]
    return found


def test_a_form_may_be_cut_anywhere() -> None:
    expected = [("mapping", None, b"text_v1"), ("file", "a.pdf", CONTENT)]
    assert read_parts(*(FORM[at : at + 1] for at in range(len(FORM)))) == expected
    different = [cut for cut in range(len(FORM)) if read_parts(FORM[:cut], FORM[cut:]) != expected]
    assert different == []


def test_a_form_that_ends_early_is_malformed() -> None:
    whole = len(FORM) - len(b"--\r\n")
    for end in range(whole):
        with pytest.raises(HttpError, match="malformed form"):
            read_parts(FORM[:end])


def test_a_part_that_is_not_read_is_skipped() -> None:
    assert [part.name for part in form_parts(Body([FORM]), TYPE)] == ["mapping", "file"]
