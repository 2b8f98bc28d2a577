"""Open pages say so when the database is away, and come back by themselves when it is."""

from __future__ import annotations

import pytest
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.web.wording import AWAY
from selenium.webdriver import Chrome, Keys

from tests.browser.page import Page
from tests.conftest import Web
from tests.waiting import eventually
from tests.web_client import TOKEN


@pytest.fixture
def page(chromium: Chrome, own_postgres: EmbeddedPostgres, web: Web) -> Page:
    page = Page(chromium, web(DATABASE_URL=own_postgres.url()).url)
    page.forget_everything()
    page.expected = ("503 (SERVICE UNAVAILABLE)",)
    return page


def test_the_queue_page_waits_for_the_database(page: Page, own_postgres: EmbeddedPostgres) -> None:
    page.open()
    page.drop("kept.pdf")
    page.wait_for_row("kept.pdf", "Waiting")
    own_postgres.stop()
    page.wait_for(AWAY[0], "#away")
    page.drop("meanwhile.pdf")
    page.wait_for_row("meanwhile.pdf", "Not sent yet")
    page.open()
    page.wait_for(AWAY[0], "#away")  # also when it is opened only now
    own_postgres.start()
    page.wait_until_gone(AWAY[0], "#away")
    page.wait_for_row("kept.pdf", "Waiting")
    page.leave()
    assert page.complaints() == []


def test_the_operators_page_waits_for_the_database(page: Page, own_postgres: EmbeddedPostgres) -> None:
    page.open("/admin")
    page.one("#token").send_keys(TOKEN, Keys.ENTER)
    page.wait_for("No server is registered")
    own_postgres.stop()
    page.wait_for("cannot be reached", "#away")
    own_postgres.start()
    page.wait_until_gone("cannot be reached", "#away")
    eventually(lambda: page.all("#chart-depth svg text"), what="the charts are still there")
    page.leave()
    assert page.complaints() == []
