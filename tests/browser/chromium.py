"""The browser of the tests: a real Chromium, driven as a person would, and asked what it complained about."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOW_TO_GET_IT = "no Chromium with its driver is on PATH: apt-get install chromium chromium-driver"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--force-device-scale-factor=1", "--lang=en",
)  # fmt: skip


def find_browser() -> str | None:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found if shutil.which("chromedriver") else None


@contextmanager
def open_browser(downloads: Path | None = None, *flags: str) -> Iterator[Chrome]:
    """With a profile of its own, which is gone afterwards."""
    profile = tempfile.mkdtemp(prefix="convertq-browser-")
    options = ChromeOptions()
    options.binary_location = find_browser() or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    if downloads:
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = Chrome(options, Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def complaints(driver: Chrome) -> list[str]:
    """Errors and violations of the policy, as its console shows them; asked once, they are gone."""
    log: list[dict[str, str]] = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]
