"""Makes pictures of both pages in every scene, scheme and width; with `--docs` only the four that README shows."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate
from convertq.queue.database.url import parse_database_url
from psycopg.rows import dict_row
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

from bench.page_scenes import SCENES, VISITOR, set_the_stage
from tests.browser.chromium import HOW_TO_GET_IT, complaints, find_browser, open_browser

TOKEN = "pictures"
WIDTHS = {"wide": (1280, 960), "phone": (390, 844)}
TALLEST = 4000
PATHS = {"queue": "/", "admin": "/admin"}
DOCS = Path(__file__).parents[1] / "docs"
SCHEMES = ("light", "dark")
#: the four that README shows, each of one screen
SHOWN = ("queue-busy-light-wide", "queue-failures-dark-phone", "queue-held-light-phone", "admin-busy-dark-wide")
QUALITY = 82


@dataclass(frozen=True)
class Picture:
    page: str
    scene: str
    scheme: str
    width: str

    @property
    def name(self) -> str:
        return f"{self.page}-{self.scene}-{self.scheme}-{self.width}"


EVERY = [Picture(*each) for each in product(PATHS, SCENES, SCHEMES, WIDTHS)]


@contextmanager
def site(postgres: EmbeddedPostgres, scene: str, home: Path) -> Iterator[str]:
    """The address of a web process whose database shows this scene."""
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {scene}".encode())
    url, uploads, results = postgres.url(scene), home / scene / "uploads", home / scene / "results"
    for path in (uploads, results):
        path.mkdir(parents=True)
    with connect(parse_database_url(url), "pictures") as connection:
        migrate(connection, "public")
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn:
        set_the_stage(conn, uploads, results, scene)
    stored = {"UPLOADS_DIR": str(uploads), "RESULTS_DIR": str(results)}
    environment = {**os.environ, **stored, "DATABASE_URL": url, "ADMIN_TOKEN": TOKEN}
    command = [sys.executable, "-m", "convertq.cli.main", "web", "run", "--port", "0", "--processes", "1"]
    web = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert web.stdout is not None
        yield next(line for line in web.stdout if line.startswith("listening on ")).split()[-1]
    finally:
        web.terminate()
        web.wait(15)


def visit(driver: Chrome, address: str, page: str) -> None:
    driver.get(f"{address}/admin")
    driver.add_cookie({"name": "owner_session_id", "value": VISITOR})
    driver.execute_script("sessionStorage.setItem('convertq admin token', arguments[0])", TOKEN)
    driver.get(address + PATHS[page])
    drawn = "#chart-times svg line" if page == "admin" else "#jobs > .job, #empty:not([hidden])"
    WebDriverWait(driver, 10).until(lambda _: driver.find_elements("css selector", drawn))


def shoot(driver: Chrome, picture: Picture, target: Path) -> None:
    """As a PNG of the whole page; as a WebP, which README shows, of what the first screen holds."""
    pixels, least = WIDTHS[picture.width]
    is_whole = target.suffix == ".png"

    def command(name: str, **values: Any) -> None:
        driver.execute_cdp_cmd(f"Emulation.{name}", values)

    preferences = {"prefers-color-scheme": picture.scheme, "prefers-reduced-motion": "reduce"}
    command("setEmulatedMedia", features=[{"name": name, "value": value} for name, value in preferences.items()])
    size = {"width": pixels, "deviceScaleFactor": 1, "mobile": picture.width == "phone"}
    command("setDeviceMetricsOverride", height=least, **size)
    command("setTouchEmulationEnabled", enabled=picture.width == "phone")
    whole = driver.execute_script("return document.documentElement.scrollHeight")
    command("setDeviceMetricsOverride", height=min(max(least, whole), TALLEST) if is_whole else least, **size)
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    options = {"format": "png"} if is_whole else {"format": "webp", "quality": QUALITY}
    target.write_bytes(b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))


def shoot_all(pictures: list[Picture], target: Callable[[Picture], Path]) -> None:
    with ExitStack() as up:
        home = Path(up.enter_context(tempfile.TemporaryDirectory()))
        postgres = up.enter_context(EmbeddedPostgres())
        driver = up.enter_context(open_browser())
        for scene in dict.fromkeys(picture.scene for picture in pictures):
            with site(postgres, scene, home) as address:
                for picture in (picture for picture in pictures if picture.scene == scene):
                    visit(driver, address, picture.page)
                    shoot(driver, picture, target(picture))
                    for line in complaints(driver):
                        print(f"{picture.name}: {line}", file=sys.stderr)
                driver.get("about:blank")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--docs", action="store_true", help="README's, into docs/")
    chosen = parser.parse_args()
    if not find_browser():
        sys.exit(HOW_TO_GET_IT)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.docs:
        shoot_all([each for each in EVERY if each.name in SHOWN], lambda picture: DOCS / f"{picture.name}.webp")
    else:
        shoot_all(
            [each for each in EVERY if chosen.only in each.name], lambda picture: chosen.out / f"{picture.name}.png"
        )


if __name__ == "__main__":
    main()
