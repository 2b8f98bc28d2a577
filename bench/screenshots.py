"""Makes pictures of both pages in every scene, scheme and width; with `--docs` also the four that README shows."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from convertq.cli.embedded import EmbeddedPostgres
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import connect
from convertq.worker.migrations import migrate
from psycopg.rows import dict_row
from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

from bench.page_scenes import SCENES, VISITOR, set_the_stage
from tests.browser.chromium import HOW_TO_GET_IT, complaints, find_browser, open_browser

TOKEN = "pictures"
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}
PATHS = {"queue": "/", "admin": "/admin"}
DOCS = Path(__file__).parents[1] / "docs"
#: which four README shows
SHOWN = ("queue-busy-light-wide", "queue-failures-dark-phone", "admin-busy-light-wide", "admin-held-dark-wide")


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
    driver.get(f"{address}/health")
    driver.add_cookie({"name": "owner_session_id", "value": VISITOR})
    driver.execute_script("sessionStorage.setItem('convertq admin token', arguments[0])", TOKEN)
    driver.get(address + PATHS[page])
    drawn = "#chart-times svg line" if page == "admin" else "#jobs > .job, #empty:not([hidden])"
    WebDriverWait(driver, 10).until(lambda _: driver.find_elements("css selector", drawn))


def shoot(driver: Chrome, width: str, scheme: str, target: Path) -> None:
    pixels, least = WIDTHS[width]

    def command(name: str, **values: Any) -> None:
        driver.execute_cdp_cmd(f"Emulation.{name}", values)

    command("setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
    ])  # fmt: skip
    size = {"width": pixels, "deviceScaleFactor": 1, "mobile": width == "phone"}
    command("setDeviceMetricsOverride", height=least, **size)
    height = max(least, driver.execute_script("return document.documentElement.scrollHeight"))
    command("setDeviceMetricsOverride", height=min(height, 4000), **size)
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    driver.save_screenshot(str(target))


def shoot_all(driver: Chrome, postgres: EmbeddedPostgres, home: Path, out: Path, scenes: list[str]) -> None:
    for scene in scenes:
        with site(postgres, scene, home) as address:
            for page in PATHS:
                visit(driver, address, page)
                for width in WIDTHS:
                    for scheme in ("light", "dark"):
                        shoot(driver, width, scheme, out / f"{page}-{scene}-{scheme}-{width}.png")
                for line in complaints(driver):
                    print(f"{page} {scene}: {line}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--scene", action="append", choices=list(SCENES))
    parser.add_argument("--docs", action="store_true", help="put README's four into docs/")
    chosen = parser.parse_args()
    if not find_browser():
        sys.exit(HOW_TO_GET_IT)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as up:
        home = Path(up.enter_context(tempfile.TemporaryDirectory()))
        postgres = up.enter_context(EmbeddedPostgres())
        driver = up.enter_context(open_browser())
        shoot_all(driver, postgres, home, chosen.out, chosen.scene or list(SCENES))
    print(f"pictures are in {chosen.out}")


if __name__ == "__main__":
    main()
