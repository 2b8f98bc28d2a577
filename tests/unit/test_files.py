"""Owns the promises of the two directories: paths from ids alone, no link followed, a file whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from uuid import UUID

import pytest
from convertq.worker.files import (
    Files,
    create,
    discard,
    is_regular,
    open_regular,
    put_in_place,
    rename_into_place,
)

JOB = UUID("12345678-1234-4234-8234-123456789abc")
HOLDER = "host.example:12:ab/3"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "deep" / "uploads", tmp_path / "deep" / "results")
    made.make_directories()
    made.make_directories()  # again is no harm
    return made


def test_paths_are_made_from_the_id(files: Files) -> None:
    assert files.source(JOB) == files.uploads / f"{JOB}.pdf"
    assert files.result(JOB) == files.results / f"{JOB}.xml"


@pytest.mark.parametrize("holder", [HOLDER, "../../etc:1:a/1", "h\n:1:a/1", "ü:1:a/1", "x" * 500 + ":1:a/1"])
def test_a_temp_file_is_named_by_its_lease_and_found_again(files: Files, holder: str) -> None:
    part = files.part(JOB, 2, holder)
    assert part.parent == files.results
    create(part).close()
    [(path, job, attempt, name)] = files.parts()
    assert (path, job, attempt) == (part, JOB, 2)
    assert files.is_of(name, holder)


def test_another_lease_has_another_temp_file(files: Files) -> None:
    names = {files.part(JOB, attempt, holder) for attempt in (1, 2) for holder in (HOLDER, "host.example:13:cd/3")}
    assert len(names) == 4


@pytest.mark.parametrize(
    "name", ["notes.txt", f"{JOB}.xml", ".x.1.h.part", f".{'-' * 36}.1.h.part", f".{JOB}.x.h.part"]
)
def test_a_name_that_convertq_does_not_make_is_nobodys_temp_file(files: Files, name: str) -> None:
    (files.results / name).touch()
    assert list(files.parts()) == []


def test_a_new_file_has_its_mode_whatever_the_umask(files: Files) -> None:
    before = os.umask(0o077)
    try:
        create(files.part(JOB, 1, HOLDER)).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(files.part(JOB, 1, HOLDER).stat().st_mode) == 0o640


def test_a_new_file_never_takes_the_place_of_anything(files: Files) -> None:
    taken = files.results / "taken"
    taken.symlink_to(files.results / "nowhere")
    with pytest.raises(FileExistsError):
        create(taken)
    assert not (files.results / "nowhere").exists()


def test_a_regular_file_is_read(files: Files) -> None:
    files.source(JOB).write_bytes(b"%PDF-")
    with open_regular(files.source(JOB)) as source:
        assert source.read() == b"%PDF-"
    assert is_regular(files.source(JOB))


@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "pipe", "missing"])
def test_anything_but_a_regular_file_is_refused_and_nothing_waits(files: Files, kind: str) -> None:
    path = files.source(JOB)
    match kind:
        case "link":
            (files.uploads / "real").write_bytes(b"x")
            path.symlink_to(files.uploads / "real")
        case "dangling link":
            path.symlink_to("nowhere")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's choice
        open_regular(path)
    assert not is_regular(path)


def test_a_result_is_put_in_place_whole(files: Files) -> None:
    part, result = files.part(JOB, 1, HOLDER), files.result(JOB)
    part.write_bytes(b"<a/>")
    put_in_place(part, result)
    assert result.read_bytes() == b"<a/>"
    discard(part)
    assert result.read_bytes() == b"<a/>"


def test_a_result_put_in_place_twice_is_the_same_result(files: Files) -> None:
    part, result = files.part(JOB, 1, HOLDER), files.result(JOB)
    part.write_bytes(b"<a/>")
    put_in_place(part, result)
    put_in_place(part, result)
    assert result.read_bytes() == b"<a/>"


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_result_never_replaces_another(files: Files, kind: str) -> None:
    part, result = files.part(JOB, 1, HOLDER), files.result(JOB)
    part.write_bytes(b"<new/>")
    if kind == "file":
        result.write_bytes(b"<old/>")
    else:
        result.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        put_in_place(part, result)
    assert kind == "dangling link" or result.read_bytes() == b"<old/>"


def test_an_upload_may_replace_an_older_copy(files: Files) -> None:
    files.source(JOB).write_bytes(b"old")
    files.upload_part(JOB).write_bytes(b"new")
    rename_into_place(files.upload_part(JOB), files.source(JOB))
    assert [path.name for path in files.uploads.iterdir()] == [f"{JOB}.pdf"]
    assert files.source(JOB).read_bytes() == b"new"


def test_what_is_gone_can_be_discarded(files: Files) -> None:
    discard(files.result(JOB))
