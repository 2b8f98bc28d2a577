"""The gate before "done": whole and well-formed XML without entities, however it is cut."""

from __future__ import annotations

import io

import pytest
from convertq.queue.xml_check import NotXml, XmlCheck, check_file

GOOD = '<?xml version="1.0" encoding="utf-8"?>\n<invoice no="1"><line>é &amp; ü</line><!-- x --></invoice>\n'.encode()


def check(body: bytes, piece: int = 1 << 16) -> None:
    checking = XmlCheck()
    for start in range(0, len(body), piece):
        checking.feed(body[start : start + piece])
    checking.finish()


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_a_good_document_passes_in_pieces_of_any_size(piece: int) -> None:
    check(GOOD, piece)


@pytest.mark.parametrize(
    "body",
    [
        b"<a/>",
        b"\xef\xbb\xbf<a/>",
        "<a>ö</a>".encode("utf-16"),
        '<?xml version="1.0" encoding="iso-8859-1"?><a>ö</a>'.encode("latin-1"),
        '<?xml version="1.0" encoding="windows-1252"?><a>€</a>'.encode("cp1252"),
        b'<!DOCTYPE a SYSTEM "a.dtd"><a/>',
        b"<a><![CDATA[<b>&x;]]></a>",
    ],
)
def test_unusual_but_well_formed_documents_pass(body: bytes) -> None:
    check(body)


@pytest.mark.parametrize("cut", range(1, len(GOOD) - 11, 9))
def test_a_document_that_was_cut_is_refused(cut: int) -> None:
    with pytest.raises(NotXml, match="not well-formed"):
        check(GOOD[:cut])


@pytest.mark.parametrize(
    "body",
    [
        b"<a><b></a>", b"<a/><b/>", b"plain text", b"{}", b"<a>&nbsp;</a>", b"<html><br></html>", b"   \n",
        b"<a>\0</a>",
        b"<a>\xff</a>", b'<a x="1" x="2"/>', b"<!-- only -->", b"%PDF-1.4",
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(NotXml) as refused:
        check(body)
    assert "\n" not in str(refused.value)


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(NotXml, match="empty"):
        check_file(io.BytesIO(b""))


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "aa">',
        '<!ENTITY a SYSTEM "file:///etc/hostname">',
        '<!ENTITY % a "aa">',
        '<!ENTITY a PUBLIC "x" "y">',
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_a_doctype_that_declares_entities_is_refused(declaration: str, piece: int) -> None:
    with pytest.raises(NotXml, match="declares entities"):
        check(f"<!DOCTYPE a [{declaration}]><a/>".encode(), piece)


@pytest.mark.parametrize("encoding", ["no-such-encoding", "shift_jis", "rot13", "hex"])
def test_an_encoding_that_cannot_be_read_is_refused_and_not_a_crash(encoding: str) -> None:
    with pytest.raises(NotXml):
        check(f'<?xml version="1.0" encoding="{encoding}"?><a/>'.encode())


def test_a_file_is_checked_to_its_last_byte() -> None:
    check_file(io.BytesIO(b"<a>" + b"<b/>" * 100_000 + b"</a>"))
    with pytest.raises(NotXml):
        check_file(io.BytesIO(b"<a>" + b"<b/>" * 100_000 + b"</a"))
