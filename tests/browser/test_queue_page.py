"""The queue page to a visitor, in a real browser, with a real worker behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from convertq.queue.errors import Code
from convertq.web.wording import AWAY, BUSY, ERRORS
from selenium.webdriver import Keys

from tests.browser.page import Page
from tests.documents import PDF
from tests.gateway_behaviours import held, ok, status
from tests.waiting import eventually
from tests.whole_site import WholeSite

SITE = {"workers": True, "MAX_UPLOAD_BYTES": 1 << 20, "CIRCUIT_WINDOW": 1000}


@pytest.fixture(autouse=True)
def healthy_gateway(whole: WholeSite) -> Iterator[None]:
    yield
    whole.gateway.default = ok()
    set_breaker(whole, "closed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def pdf(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(PDF + f"% {uuid4()}\n".encode())
    return path


def set_breaker(whole: WholeSite, state: str) -> None:
    whole.documents.conn.execute(
        "UPDATE circuit_breaker SET state = %(state)s, by_hand = %(state)s = 'open',"
        " opened_at = CASE %(state)s WHEN 'open' THEN now() END",
        {"state": state},
    )


def downloaded(downloads: Path, name: str) -> str:
    """Chromium first creates an empty file of this name, and then renames the finished download over it."""
    path = downloads / name
    eventually(lambda: path.exists() and path.stat().st_size > 0, what=f"{name}, with its content")
    return path.read_text()


def test_files_are_uploaded_watched_and_downloaded(page: Page, whole: WholeSite, folder: Path, downloads: Path) -> None:
    let_go = threading.Event()
    whole.gateway.default = held(let_go)
    page.open()
    assert "Nothing converted yet" in page.text()
    page.choose(pdf(folder, "Fatura março.pdf"), pdf(folder, "second.pdf"))
    row = page.wait_for_row("Fatura março.pdf", "Converting")
    assert page.one(f"{row} progress").is_displayed()
    eventually(lambda: page.driver.title.startswith("(2)"), what="two files under way in the title")
    let_go.set()
    page.wait_for_row("second.pdf", "Ready")
    row = page.wait_for_row("Fatura março.pdf", "Ready")
    page.click(f"{row} .download")
    job_id = page.one(row).get_attribute("data-key")
    assert str(job_id) in downloaded(downloads, "Fatura março.xml")
    eventually(lambda: page.one("#jobs").get_attribute("data-active") == "0", what="nothing is active")
    assert not page.driver.title.startswith("(")


def test_many_dropped_files_all_arrive(page: Page) -> None:
    page.open()
    names = [f"dropped {number}.pdf" for number in range(9)]
    page.drop(*names)
    for name in names:
        page.wait_for_row(name, "Ready")
    assert sorted(page.texts("#jobs .file")) == names


def test_each_upload_shows_how_far_it_is_and_can_be_cancelled(page: Page, whole: WholeSite, folder: Path) -> None:
    def arriving() -> int:
        return len(list(whole.documents.uploads.glob(".*.upload.part")))

    page.open()
    page.offline(False)
    page.slow_uploads(100_000)
    for name in ("first.pdf", "second.pdf"):
        (folder / name).write_bytes(PDF + b"%" * 800_000 + uuid4().bytes)
    page.choose(folder / "first.pdf", folder / "second.pdf")
    for name in ("first.pdf", "second.pdf"):
        row = page.wait_for_row(name, "Uploading")
        bar = page.one(f"{row} progress")
        eventually(lambda bar=bar: 0 < int(bar.get_attribute("value") or 0) < 100, what="a part of it")  # type: ignore[misc]
    assert bar.get_attribute("aria-label") == "Progress of second.pdf"
    eventually(lambda: arriving() == 2, what="both are on their way")
    page.click(f"{page.row('second.pdf')} .dismiss")
    eventually(lambda: arriving() == 1, what="the server hears of it, before the line is quick again")
    page.offline(False)
    page.wait_for_row("first.pdf", "Ready")
    assert page.texts("#jobs .file") == ["first.pdf"]


def test_the_same_file_again_joins_what_is_there(page: Page, folder: Path) -> None:
    page.open()
    same = pdf(folder, "same.pdf")
    page.choose(same)
    page.wait_for_row("same.pdf", "Ready")
    page.choose(same)
    page.wait_for("same.pdf is in the list already", "#announcements")
    assert len(page.all("#jobs > .job")) == 1


def test_a_running_conversion_is_cancelled_and_started_over(page: Page, whole: WholeSite, folder: Path) -> None:
    let_go = threading.Event()
    whole.gateway.default = held(let_go)
    page.open()
    page.one("#files").send_keys(str(pdf(folder, "cancelled.pdf")))
    row = "#jobs .job:first-child"
    page.wait_for("Converting", row)
    page.click(f"{row} .end button")
    page.wait_for("Cancelled", row)
    assert not page.one(f"{row} .end").is_displayed()
    whole.gateway.default = ok()
    let_go.set()
    page.click(f"{row} .again button")
    page.wait_for("Ready", row)


def test_a_failure_says_what_to_do_and_is_tried_again(page: Page, whole: WholeSite, folder: Path) -> None:
    whole.gateway.default = status(400)
    page.open()
    page.choose(pdf(folder, "scan.pdf"))
    row = page.wait_for_row("scan.pdf", "Failed")
    assert ERRORS[Code.GW_4XX][0] in page.text(row)
    page.wait_for("scan.pdf failed", "#announcements")
    whole.gateway.default = ok()
    page.click(f"{row} .again button")
    page.wait_for_row("scan.pdf", "Ready")
    assert ERRORS[Code.GW_4XX][0] not in page.text(row)


def test_the_same_by_keyboard_alone(page: Page, whole: WholeSite, folder: Path, downloads: Path) -> None:
    whole.gateway.default = status(400)
    page.open()
    page.tab_to("#files")
    page.choose(pdf(folder, "keys.pdf"))  # the file dialog is the browser's own
    row = page.wait_for_row("keys.pdf", "Failed")
    whole.gateway.default = ok()
    page.tab_to(f"{row} .again button")
    page.press(Keys.ENTER)
    page.wait_for_row("keys.pdf", "Ready")
    assert page.has_focus(row), "the reader's place is kept when the button goes away"
    page.press(Keys.TAB)
    assert page.has_focus(f"{row} .download")
    page.press(Keys.ENTER)
    assert downloaded(downloads, "keys.xml")


def test_what_cannot_be_converted_is_told_before_it_is_sent(page: Page, whole: WholeSite, folder: Path) -> None:
    page.open()
    (folder / "notes.txt").write_text("hello")
    (folder / "huge.pdf").write_bytes(b"%PDF-1.7" + b"x" * (1 << 20))
    page.choose(folder / "notes.txt", folder / "huge.pdf")
    page.wait_for_row("notes.txt", ERRORS[Code.NOT_PDF][0])
    page.wait_for_row("huge.pdf", "A file may have up to 1 MB.")
    before = len(page.all("#jobs > .job"))
    page.click(f"{page.row('notes.txt')} .dismiss")
    page.click(f"{page.row('huge.pdf')} .dismiss")
    assert (before, len(page.all("#jobs > .job"))) == (2, 0)
    page.wait_for("Nothing converted yet")
    assert page.run(
        "return performance.getEntriesByType('resource').every((e) => e.initiatorType !== 'xmlhttprequest')"
    )


def test_a_hostile_file_name_is_only_shown(page: Page, folder: Path) -> None:
    page.open()
    name = "<img src=x onerror=alert(1)>&amp;.pdf"
    page.choose(pdf(folder, name))
    page.wait_for_row(name, "Ready")
    assert not page.all("#jobs img")


def test_the_banner_comes_and_goes_with_the_breaker(page: Page, whole: WholeSite, folder: Path) -> None:
    page.open()
    set_breaker(whole, "open")
    page.choose(pdf(folder, "waiting.pdf"))
    page.wait_for(BUSY[0], "#busy")
    page.wait_for_row("waiting.pdf", "Paused")
    set_breaker(whole, "closed")
    page.wait_until_gone(BUSY[0], "#busy")
    page.wait_for_row("waiting.pdf", "Ready")


def test_a_page_that_loses_the_server_says_so_and_catches_up(page: Page, whole: WholeSite, folder: Path) -> None:
    page.expected = ("ERR_INTERNET_DISCONNECTED",)
    let_go = threading.Event()
    whole.gateway.default = held(let_go)
    page.open()
    page.choose(pdf(folder, "before.pdf"))
    page.wait_for_row("before.pdf", "Converting")
    page.offline(True)
    page.wait_for(AWAY[0], "#away")
    page.choose(pdf(folder, "during.pdf"))
    page.wait_for_row("during.pdf", "Not sent yet")
    let_go.set()
    page.offline(False)
    page.wait_until_gone(AWAY[0], "#away")
    page.wait_for_row("before.pdf", "Ready")
    page.wait_for_row("during.pdf", "Ready")


def test_it_asks_less_often_while_nothing_moves_and_not_at_all_when_all_is_done(
    page: Page, whole: WholeSite, folder: Path
) -> None:
    let_go = threading.Event()
    whole.gateway.default = held(let_go)
    page.open()
    page.choose(pdf(folder, "slow.pdf"))
    row = page.wait_for_row("slow.pdf", "Converting")
    page.let_time_pass(60)
    answers = page.answers("/api/jobs")
    assert 5 < len(answers) < 30, "every ten seconds in the end, where it began with every second"
    assert answers.count(304) >= len(answers) // 2, "the list is the same; it is sent again only for new estimates"
    let_go.set()
    whole.documents.wait_for(UUID(page.one(row).get_attribute("data-key")))
    page.let_time_pass(30)
    page.wait_for_row("slow.pdf", "Ready")
    asked = len(page.answers("/api/jobs"))
    page.let_time_pass(120)
    assert len(page.answers("/api/jobs")) == asked
    page.drop("next.pdf")
    page.let_time_pass(5)
    assert len(page.answers("/api/jobs")) > asked


def test_a_hidden_page_asks_nothing_and_catches_up_when_it_is_seen_again(
    page: Page, whole: WholeSite, folder: Path
) -> None:
    let_go = threading.Event()
    whole.gateway.default = held(let_go)
    page.open()
    page.choose(pdf(folder, "unwatched.pdf"))
    row = page.wait_for_row("unwatched.pdf", "Converting")
    page.hide()
    page.let_time_pass(15)  # what was asked before is answered
    asked = len(page.answers("/api/jobs"))
    let_go.set()
    whole.documents.wait_for(UUID(page.one(row).get_attribute("data-key")))
    page.let_time_pass(120)
    assert len(page.answers("/api/jobs")) == asked
    assert "Converting" in page.text(row)
    page.unhide()
    page.wait_for_row("unwatched.pdf", "Ready")
    assert len(page.answers("/api/jobs")) == asked + 1


def test_without_a_script_files_are_uploaded_and_listed(page: Page, folder: Path) -> None:
    page.scripts(False)
    page.open()
    page.choose(pdf(folder, "plain one.pdf"), pdf(folder, "plain two.pdf"))
    page.click("#upload button.plain")
    eventually(lambda: page.all(".notice.good"), what="the page that follows")
    page.scripts(True)  # only now can the words be read
    shown = page.text()
    assert "2 files uploaded." in shown
    assert "plain one.pdf" in shown
    assert "plain two.pdf" in shown


def test_older_files_are_shown_on_demand_and_stay(page: Page, whole: WholeSite) -> None:
    owner = str(uuid4())
    for number in range(60):
        whole.documents.insert(
            owner_session_id=owner, original_filename=f"n{number}.pdf", sha256=f"{number:064}", status="failed",
            error_code="GW_4XX", error_message="400",
        )  # fmt: skip
    page.become(owner)
    page.open()
    assert len(page.all("#jobs > .job")) == 50
    page.click("#more a")
    eventually(lambda: len(page.all("#jobs > .job")) == 60, what="sixty lines")
    assert not page.one("#more").is_displayed()
    page.drop("newest.pdf")
    page.wait_for_row("newest.pdf", "Ready")
    assert len(page.all("#jobs > .job")) == 61


def test_it_fits_a_small_phone(page: Page, folder: Path) -> None:
    page.size(360, 700)
    page.open()
    name = "a-name-without-any-space-that-goes-on-and-on-and-on-and-on-and-on.pdf"
    page.choose(pdf(folder, name))
    page.wait_for_row(name, "Ready")
    assert page.run("return document.documentElement.scrollWidth") <= 360


def test_without_a_script_it_fits_the_smallest_screen(page: Page) -> None:
    page.size(320, 600)
    page.scripts(False)
    page.open()
    assert page.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]["width"] <= 320


def test_everything_on_it_can_be_hit_with_a_finger(page: Page, whole: WholeSite, folder: Path) -> None:
    whole.gateway.default = status(400)
    page.size(390, 844)
    page.fingers(True)
    page.open()
    page.choose(pdf(folder, "failed.pdf"))
    page.wait_for_row("failed.pdf", "Failed")
    assert page.too_small_to_hit() == []
