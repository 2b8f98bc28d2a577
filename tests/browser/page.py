"""How the tests look at a page: by what a person sees, presses and hears."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.browser.chromium import complaints
from tests.waiting import WAIT_SECONDS, eventually

MOST_TABS = 80
#: what is left of a page: nothing that a timer could still ask for
BLANK = "about:blank"


class Page:
    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver, self.url = driver, url
        self.expected: tuple[str, ...] = ()

    # -- going --

    def forget_everything(self) -> None:
        """In a new tab: what belonged to the old one ends with it."""
        old = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        new = self.driver.current_window_handle
        self.driver.switch_to.window(old)
        self.driver.close()
        self.driver.switch_to.window(new)
        for command in ("Network.clearBrowserCookies", "Network.clearBrowserCache"):
            self.driver.execute_cdp_cmd(command, {})
        self.size(1280, 900)
        complaints(self.driver)

    def open(self, path: str = "/") -> None:
        self.driver.get(self.url + path)

    def leave(self) -> None:
        self.offline(False)
        self.scripts(True)
        self.fingers(False)
        self.driver.get(BLANK)

    def complaints(self) -> list[str]:
        return [line for line in complaints(self.driver) if not any(text in line for text in self.expected)]

    def size(self, width: int, height: int) -> None:
        values = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", values)

    def fingers(self, on: bool) -> None:
        """A touch screen instead of a mouse."""
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": on})

    def too_small_to_hit(self, least: int = 44) -> list[str]:
        """What can be pressed, is seen, and is smaller than a finger needs; a checkbox counts with its label."""
        found: list[str] = self.run(
            """
            return [...document.querySelectorAll("a[href], button, input:not([type=file]), select")]
              .filter((e) => e.checkVisibility() && !e.matches(".skip, .brand"))
              .map((e) => [e, (e.closest("label") ?? e).getBoundingClientRect()])
              .filter(([e, box]) => Math.min(box.height, box.width) < (e.type === "checkbox" ? 24 : arguments[0]))
              .map(([e, box]) => `${e.outerHTML.slice(0, 80)} ${box.width} x ${box.height}`)
            """,
            least,
        )
        return found

    def offline(self, offline: bool) -> None:
        self.driver.execute_cdp_cmd("Network.enable", {})
        self._network(offline=offline)

    def slow_uploads(self, bytes_a_second: int) -> None:
        """As over a bad line; `offline(False)` ends it."""
        self._network(uploadThroughput=bytes_a_second)

    def _network(self, **conditions: Any) -> None:
        values = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1, **conditions}
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", values)

    def scripts(self, enabled: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not enabled})

    def hide(self) -> None:
        """Its window is put away: it goes on living, and nobody sees it."""
        self.driver.minimize_window()
        eventually(lambda: self.run("return document.hidden"), what="a hidden page")

    def unhide(self) -> None:
        self.driver.set_window_size(1280, 900)
        eventually(lambda: not self.run("return document.hidden"), what="a page that is seen")

    def let_time_pass(self, seconds: float) -> None:
        """Time passes for the page's timers alone, as quickly as they run; requests to the server are waited for.

        It waits until the whole budget is used up: the end of an older budget would stop the clock of the next one.
        """
        values = {"policy": "pauseIfNetworkFetchesPending", "budget": seconds * 1000}
        began = self.run("return performance.now()")
        self.driver.execute_cdp_cmd("Emulation.setVirtualTimePolicy", values)
        passed = "return performance.now() - arguments[0] >= arguments[1]"
        eventually(lambda: self.run(passed, began, seconds * 1000 - 1), what=f"{seconds:g} s for the page")

    def become(self, owner: str) -> None:
        values = {"name": "owner_session_id", "value": owner, "url": self.url}
        self.driver.execute_cdp_cmd("Network.setCookie", values)

    # -- seeing --

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def answers(self, path: str) -> list[int]:
        """The status of each answer that this page has had from there."""
        found: list[int] = self.run(
            "return performance.getEntriesByType('resource')"
            ".filter((e) => new URL(e.name).pathname === arguments[0]).map((e) => e.responseStatus)",
            path,
        )
        return found

    def text(self, css: str = "main") -> str:
        """As it is shown; what is hidden has none."""
        words = self.run(
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter((e) => e.checkVisibility()).map((e) => e.innerText).join(' ')",
            css,
        )
        return " ".join(str(words).split())

    def texts(self, css: str) -> list[str]:
        """Of each, in one look: one by one they could be gone before the last is asked."""
        found: list[str] = self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", css)
        return found

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def wait_for(self, words: str, css: str = "main", timeout: float = WAIT_SECONDS) -> None:
        eventually(lambda: words in self.text(css), timeout, f"[{words}] in [{css}]")

    def wait_until_gone(self, words: str, css: str = "main", timeout: float = WAIT_SECONDS) -> None:
        eventually(lambda: words not in self.text(css), timeout, f"[{words}] no more in [{css}]")

    def row(self, name: str) -> str:
        """The selector of the line of this file."""
        key = self.run(
            "return [...document.querySelectorAll('#jobs > .job')]"
            ".find((row) => row.querySelector('.file').textContent === arguments[0])?.dataset.key",
            name,
        )
        return f'#jobs > [data-key="{key}"]'

    def wait_for_row(self, name: str, words: str, timeout: float = WAIT_SECONDS) -> str:
        eventually(lambda: words in self.text(self.row(name)), timeout, f"[{words}] in the line of {name}")
        return self.row(name)

    @property
    def focus(self) -> WebElement:
        return self.driver.switch_to.active_element

    def has_focus(self, css: str) -> bool:
        return bool(self.run("return document.activeElement.matches(arguments[0])", css))

    # -- doing --

    def click(self, css: str) -> None:
        self.one(css).click()

    def choose(self, *paths: Path) -> None:
        self.one("#files").send_keys("\n".join(map(str, paths)))

    def drop(self, *names: str) -> None:
        """Small PDFs of these names, dropped onto the page."""
        self.run(
            """
            const transfer = new DataTransfer();
            for (const name of arguments[0]) transfer.items.add(new File([`%PDF-1.7 ${name}`], name));
            for (const type of ["dragenter", "dragover", "drop"]) {
              const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
              document.body.dispatchEvent(new DragEvent(type, options));
            }
            """,
            list(names),
        )

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, css: str) -> None:
        """With the keyboard alone, from wherever the focus is."""
        for _ in range(MOST_TABS):
            self.press(Keys.TAB)
            if self.has_focus(css):
                return
        raise AssertionError(f"{MOST_TABS} tabs did not reach [{css}]")
