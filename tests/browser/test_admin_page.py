"""The operator's page, in a real browser, on a queue that has had a bad hour."""

from __future__ import annotations

import pytest
from selenium.webdriver import Keys

from bench.page_scenes import VISITOR, set_the_stage
from tests.browser.page import Page
from tests.jobs import insert_job
from tests.waiting import eventually
from tests.web_client import TOKEN
from tests.whole_site import WholeSite

SITE = {"workers": False}
CHARTS = ("chart-depth", "chart-pace", "chart-times", "chart-errors")


@pytest.fixture(scope="module")
def scene(whole: WholeSite) -> WholeSite:
    documents = whole.documents
    set_the_stage(documents.conn, documents.uploads, documents.results, "failures")
    return whole


@pytest.fixture
def signed_in(page: Page, scene: WholeSite) -> Page:
    page.open("/admin")
    page.one("#token").send_keys(TOKEN, Keys.ENTER)
    page.wait_for("Circuit breaker")
    eventually(lambda: page.all("#failures > .failure"), what="failed jobs")
    return page


def count(scene: WholeSite, condition: str) -> int:
    row = scene.documents.conn.execute(f"SELECT count(*) AS count FROM jobs WHERE {condition}".encode()).fetchone()
    assert row is not None
    return int(row["count"])


def breaker(scene: WholeSite) -> tuple[str, bool]:
    row = scene.documents.conn.execute("SELECT state, by_hand FROM circuit_breaker").fetchone()
    assert row is not None
    return row["state"], row["by_hand"]


def test_a_wrong_token_is_refused_in_words_and_the_right_one_stays_in_this_tab(page: Page, scene: WholeSite) -> None:
    page.expected = ("401 (UNAUTHORIZED)",)
    page.open("/admin")
    assert "Circuit breaker" not in page.text()
    page.one("#token").send_keys("wrong", Keys.ENTER)
    page.wait_for("This token is not the right one.")
    assert page.has_focus("#token")
    page.one("#token").clear()
    page.one("#token").send_keys(TOKEN, Keys.ENTER)
    page.wait_for("Circuit breaker")
    kept = page.run("return [Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
    assert kept == [[TOKEN], [], ""]
    page.open("/admin")
    page.wait_for("Circuit breaker")
    page.click("#sign-out")
    page.wait_for("Admin token")
    assert page.run("return sessionStorage.length") == 0


def test_it_shows_the_queue_its_last_hour_and_its_servers(signed_in: Page, scene: WholeSite) -> None:
    signed_in.wait_for("conv-01:2114", "#servers")
    assert "closed: jobs go through" in signed_in.text("#breaker")
    failed = count(scene, "status = 'failed'")
    signed_in.wait_for(str(failed), "#tile-failed .figure")
    for chart in CHARTS:
        eventually(lambda chart=chart: signed_in.all(f"#{chart} svg g *"), what=f"{chart} drawn")  # type: ignore[misc]
        described = signed_in.run("return document.getElementById(arguments[0]).textContent", f"{chart}-desc")
        assert "at most" in described
    items = "[...document.querySelectorAll('#chart-errors .legend li')]"
    looks = f"return {items}.map((e) => [e.innerText, e.className.trim()])"
    wanted = [["GW_5XX", "s2"], ["GW_TIMEOUT", "s4"], ["GW_4XX", "s1"], ["IO_ERROR", "s3"]]
    assert signed_in.run(looks) == wanted, "a code keeps its colour, whichever is the most frequent"


def test_a_chart_is_read_minute_by_minute_with_the_arrow_keys(signed_in: Page) -> None:
    eventually(lambda: signed_in.all("#chart-pace svg .bar"), what="bars")
    signed_in.run("document.querySelector('#chart-pace svg').focus()")
    signed_in.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    said = signed_in.text("#chart-pace .readout")
    assert "completed" in said
    signed_in.wait_for(said, "#announcements")
    signed_in.press(Keys.HOME)
    assert signed_in.text("#chart-pace .readout") != said


def test_the_queue_is_held_and_let_go_after_asking(signed_in: Page, scene: WholeSite) -> None:
    signed_in.tab_to("#open-breaker")
    signed_in.press(Keys.ENTER)
    signed_in.wait_for("Hold the queue?", "#confirm")
    signed_in.press(Keys.ESCAPE)
    signed_in.wait_until_gone("Hold the queue?", "#confirm")
    assert breaker(scene) == ("closed", False)
    assert signed_in.has_focus("#open-breaker")
    signed_in.press(Keys.ENTER)
    signed_in.wait_for("Hold the queue?", "#confirm")
    signed_in.tab_to("#confirm-yes")
    signed_in.press(Keys.ENTER)
    signed_in.wait_for("open: the queue is held", "#breaker")
    assert breaker(scene) == ("open", True)
    signed_in.click("#close-breaker")
    signed_in.wait_for("Let jobs through?", "#confirm")
    signed_in.click("#confirm-yes")
    signed_in.wait_for("closed: jobs go through", "#breaker")
    assert breaker(scene) == ("closed", False)


def test_failed_jobs_are_chosen_and_retried_and_the_choice_outlives_a_look(signed_in: Page, scene: WholeSite) -> None:
    before = count(scene, "status = 'failed' AND error_code = 'IO_ERROR'")
    signed_in.one("#filter [name=code]").send_keys("IO_ERROR")
    eventually(lambda: len(signed_in.all("#failures > .failure")) == before, what="only IO_ERROR")
    signed_in.all("#failures .chosen")[1].click()
    looked = signed_in.text("#updated")
    signed_in.run("document.querySelectorAll('#failures .chosen')[2].focus()")
    eventually(lambda: signed_in.text("#updated") != looked, what="another look")
    assert signed_in.has_focus("#failures .chosen"), "the focus is where it was"
    signed_in.press(Keys.SPACE)
    signed_in.wait_for("Retry selected (2)", "#bulk")
    signed_in.click("#retry-selected")
    signed_in.wait_for("2 jobs queued again", "#toast")
    assert count(scene, "status = 'failed' AND error_code = 'IO_ERROR'") == before - 2
    eventually(lambda: len(signed_in.all("#failures > .failure")) == before - 2, what="two fewer")


def test_all_that_match_are_retried_after_asking(signed_in: Page, scene: WholeSite) -> None:
    signed_in.one("#filter [name=owner]").send_keys("cli")
    eventually(lambda: set(signed_in.texts("#failures .owner")) == {"cli"}, what="only of cli")
    others = count(scene, "status = 'failed' AND owner_session_id <> 'cli'")
    signed_in.click("#retry-matching")
    signed_in.wait_for("owner cli", "#confirm")
    signed_in.click("#confirm-yes")
    signed_in.wait_for("queued again", "#toast")
    assert count(scene, "status = 'failed' AND owner_session_id = 'cli'") == 0
    assert count(scene, "status = 'failed' AND owner_session_id <> 'cli'") == others
    signed_in.wait_for("No failed job")


def test_unfinished_jobs_are_cancelled_after_a_preview(signed_in: Page, scene: WholeSite) -> None:
    for number in range(3):
        insert_job(
            scene.documents.conn,
            owner_session_id="to-cancel",
            original_filename=f"{number}.pdf",
            retry_after="infinity",
        )
    assert signed_in.one("#cancel button").get_attribute("disabled") == "true"
    signed_in.one("#cancel [name=owner]").send_keys("to-cancel")
    signed_in.click("#cancel button")
    signed_in.wait_for("3 jobs: 0.pdf, 1.pdf, 2.pdf.", "#confirm")
    assert count(scene, "status = 'cancelled'") == 0
    signed_in.click("#confirm-yes")
    signed_in.wait_for("3 cancelled", "#toast")
    assert count(scene, "status = 'cancelled' AND owner_session_id = 'to-cancel'") == 3


def test_those_given_up_are_found(signed_in: Page, scene: WholeSite) -> None:
    signed_in.click("#filter [name=dead]")
    eventually(
        lambda: all("given up" in text for text in signed_in.texts("#failures > .failure")), what="only those given up"
    )
    assert signed_in.all("#failures > .failure")


def test_a_hidden_page_asks_nothing_until_it_is_seen_again(signed_in: Page) -> None:
    signed_in.hide()
    signed_in.let_time_pass(15)
    asked = len(signed_in.answers("/api/admin/dashboard"))
    signed_in.let_time_pass(120)
    assert len(signed_in.answers("/api/admin/dashboard")) == asked
    signed_in.unhide()
    eventually(lambda: len(signed_in.answers("/api/admin/dashboard")) > asked, what="a look")


def test_those_given_up_are_found_behind_thousands_that_were_not(page: Page, scene: WholeSite) -> None:
    conn = scene.documents.conn
    conn.execute(
        "INSERT INTO jobs (owner_session_id, original_filename, bytes, sha256, status, failed_at, error_code,"
        " dead_letter, created_at)"
        " SELECT 'many', 'n' || n, 1, lpad('a' || n, 64, '0'), 'failed', now(), 'UNKNOWN', n > 1500,"
        "        now() - n * interval '1 s' FROM generate_series(1, 1503) AS n"
    )
    page.open("/admin")
    page.one("#token").send_keys(TOKEN, Keys.ENTER)
    page.wait_for("Circuit breaker")
    page.one("#filter [name=owner]").send_keys("many")
    eventually(lambda: set(page.texts("#failures .owner")) == {"many"}, what="only of many")
    page.click("#filter [name=dead]")
    eventually(lambda: page.texts("#failures .file") == ["n1501", "n1502", "n1503"], what="the three given up")
    assert not page.one("#more-failures").is_displayed()
    page.one("#filter [name=owner]").send_keys(" else")
    page.wait_for("No failed job matches", "#no-matches")
    page.click("#no-matches button")
    eventually(lambda: page.all("#failures > .failure"), what="all of them again")
    assert page.has_focus("#filter [name=code]")


def test_it_fits_a_small_phone(signed_in: Page) -> None:
    signed_in.size(360, 700)
    signed_in.wait_for("conv-01:2114", "#servers")
    wide = "return [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 360)"
    assert signed_in.run(f"{wide}.map((e) => e.outerHTML.slice(0, 80))") == []
    assert signed_in.run("return document.documentElement.scrollWidth") <= 360


def test_everything_on_it_can_be_hit_with_a_finger(signed_in: Page) -> None:
    signed_in.size(390, 844)
    signed_in.fingers(True)
    assert signed_in.too_small_to_hit() == []


def test_the_list_of_the_server_and_the_list_of_the_script_are_the_same(page: Page, scene: WholeSite) -> None:
    page.become(VISITOR)
    page.scripts(False)
    page.open("/")
    page.scripts(True)
    by_server = page.text("#jobs")
    page.open("/")
    asked = "return performance.getEntriesByType('resource').some((e) => e.name.includes('/api/jobs'))"
    eventually(lambda: page.run(asked), what="a look of the script's")
    eventually(lambda: page.run("return [...document.querySelectorAll('#jobs > .job')].every((row) => row.job)"))
    assert "not accepted" in by_server
    assert page.text("#jobs") == by_server
