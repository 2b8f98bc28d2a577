"""What the browser's tests share: one Chromium, a new visitor for each test, and a silent console at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pytest_postgresql.executors import NoopExecutor
from selenium.webdriver import Chrome

from tests.browser.chromium import HOW_TO_GET_IT, find_browser, open_browser
from tests.browser.page import Page
from tests.conftest import Server
from tests.whole_site import Makings, WholeSite, whole_site


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def chromium(downloads: Path) -> Iterator[Chrome]:
    if not find_browser():
        pytest.skip(HOW_TO_GET_IT)
    with open_browser(downloads) as driver:
        yield driver


@pytest.fixture(scope="module")
def whole(
    request: pytest.FixtureRequest,
    chromium: Chrome,
    pg_server: Server,
    template: NoopExecutor,
    admin: psycopg.Connection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WholeSite]:
    """Configured by the module's SITE; without workers where they would run away with the scene."""
    folder = tmp_path_factory.mktemp("site")
    with whole_site(Makings(pg_server, template, admin), folder, **request.module.SITE) as up:
        yield up


@pytest.fixture
def page(chromium: Chrome, whole: WholeSite) -> Iterator[Page]:
    """A new visitor's, on nothing yet."""
    page = Page(chromium, whole.url)
    page.forget_everything()
    yield page
    page.leave()
    assert page.complaints() == []
