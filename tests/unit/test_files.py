"""The two directories: paths from ids alone, no link followed, a file whole or not there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from convertq.queue.store import regular_file
from convertq.queue.store.regular_file import (
    create,
    discard,
    is_regular,
    open_regular,
    put_in_place,
    rename_into_place,
)
from convertq.queue.store.run_mark import mark_run, run_of

from tests.files import Files

JOB = UUID("12345678-1234-4234-8234-123456789abc")
HOLDER = "host.example:12:ab/3"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "deep" / "uploads", tmp_path / "deep" / "results")
    made.make_ready()
    made.make_ready()  # again is no harm
    return made


def test_paths_are_made_from_the_id(files: Files) -> None:
    assert files.source(JOB) == files.uploads / f"{JOB}.pdf"
    assert files.result(JOB) == files.results / f"{JOB}.xml"


@pytest.mark.parametrize("holder", [HOLDER, "../../etc:1:a/1", "h\n:1:a/1", "ü:1:a/1", "x" * 500 + ":1:a/1"])
def test_a_temp_file_is_named_by_its_lease_and_found_again(files: Files, holder: str) -> None:
    temporary = files.temporary_result(JOB, 2, holder)
    assert temporary.parent == files.results
    create(temporary).close()
    [found] = files.list_temporary_results()
    assert (found.location, found.job_id, found.attempt) == (str(temporary), JOB, 2)
    assert files.is_held_by(found, holder)


def test_another_lease_has_another_temp_file(files: Files) -> None:
    names = {
        files.temporary_result(JOB, attempt, holder)
        for attempt in (1, 2)
        for holder in (HOLDER, "host.example:13:cd/3")
    }
    assert len(names) == 4


@pytest.mark.parametrize(
    "name", ["notes.txt", f"{JOB}.xml", ".x.1.h.part", f".{'-' * 36}.1.h.part", f".{JOB}.x.h.part"]
)
def test_a_name_that_convertq_does_not_make_is_nobodys_temp_file(files: Files, name: str) -> None:
    (files.results / name).touch()
    assert list(files.list_temporary_results()) == []


def test_an_upload_in_progress_is_no_attempts_file_where_the_directories_are_one(tmp_path: Path) -> None:
    files = Files(tmp_path, tmp_path)
    create(files.temporary_source(JOB)).close()
    assert list(files.list_temporary_results()) == []


def test_a_new_file_has_its_mode_whatever_the_umask(files: Files) -> None:
    before = os.umask(0o077)
    try:
        create(files.temporary_result(JOB, 1, HOLDER)).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(files.temporary_result(JOB, 1, HOLDER).stat().st_mode) == 0o640


def test_a_new_file_never_takes_the_place_of_anything(files: Files) -> None:
    taken = files.results / "taken"
    taken.symlink_to(files.results / "nowhere")
    with pytest.raises(FileExistsError):
        create(taken)
    assert not (files.results / "nowhere").exists()


def test_a_regular_file_is_read(files: Files) -> None:
    files.source(JOB).write_bytes(b"%PDF-")
    with open_regular(files.source(JOB)).file as source:
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
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<a/>")
    put_in_place(temporary, result)
    assert result.read_bytes() == b"<a/>"
    discard(temporary)
    assert result.read_bytes() == b"<a/>"


def test_a_result_put_in_place_twice_is_the_same_result(files: Files) -> None:
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<a/>")
    put_in_place(temporary, result)
    put_in_place(temporary, result)
    assert result.read_bytes() == b"<a/>"


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_a_result_never_replaces_another(files: Files, kind: str) -> None:
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<new/>")
    if kind == "file":
        result.write_bytes(b"<old/>")
    else:
        result.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        put_in_place(temporary, result)
    assert kind == "dangling link" or result.read_bytes() == b"<old/>"


# -- file systems without hard links --

NO_LINKS = [errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS]


@pytest.fixture(params=[False, True], ids=["renameat2", "no renameat2"])
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`no_links(errno.EPERM)`: so ends every link from now on; in one of two cases renameat2 is not there either."""

    def no_links(number: int) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", refuse)

    if request.param:
        monkeypatch.setattr(regular_file, "_renameat2", None)
    return no_links


@pytest.mark.parametrize("number", NO_LINKS, ids=errno.errorcode.__getitem__)
def test_without_links_a_result_is_put_in_place_whole(
    files: Files, no_links: Callable[[int], None], number: int
) -> None:
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<a/>")
    no_links(number)
    put_in_place(temporary, result)
    discard(temporary)
    assert result.read_bytes() == b"<a/>"


@pytest.mark.parametrize("kind", ["file", "dangling link"])
@pytest.mark.parametrize("number", NO_LINKS, ids=errno.errorcode.__getitem__)
def test_without_links_a_result_never_replaces_another(
    files: Files, no_links: Callable[[int], None], number: int, kind: str
) -> None:
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<older/>")
    if kind == "file":
        result.write_bytes(b"<newer/>")
    else:
        result.symlink_to("nowhere")
    no_links(number)
    with pytest.raises(FileExistsError):
        put_in_place(temporary, result)
    assert kind == "dangling link" or result.read_bytes() == b"<newer/>"


def test_without_links_a_second_try_finds_the_first_ones_result(files: Files, no_links: Callable[[int], None]) -> None:
    """After a commit that was lost. Whether the file that is there will do, its caller decides."""
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    temporary.write_bytes(b"<a/>")
    no_links(errno.EPERM)
    put_in_place(temporary, result)
    with pytest.raises(FileExistsError):
        put_in_place(temporary, result)
    assert result.read_bytes() == b"<a/>"


def test_without_links_a_result_keeps_its_run(files: Files, no_links: Callable[[int], None]) -> None:
    temporary, result = files.temporary_result(JOB, 1, HOLDER), files.result(JOB)
    with create(temporary) as sink:
        sink.write(b"<a/>")
        mark_run(sink, 7)
    no_links(errno.ENOSYS)
    put_in_place(temporary, result)
    assert run_of(result) == 7


def test_a_temp_file_that_is_gone_is_an_error_where_there_is_no_result(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        put_in_place(files.temporary_result(JOB, 1, HOLDER), files.result(JOB))


def test_an_upload_may_replace_an_older_copy(files: Files) -> None:
    files.source(JOB).write_bytes(b"old")
    files.temporary_source(JOB).write_bytes(b"new")
    rename_into_place(files.temporary_source(JOB), files.source(JOB))
    assert [path.name for path in files.uploads.iterdir()] == [f"{JOB}.pdf"]
    assert files.source(JOB).read_bytes() == b"new"


def test_what_is_gone_can_be_discarded(files: Files) -> None:
    discard(files.result(JOB))
