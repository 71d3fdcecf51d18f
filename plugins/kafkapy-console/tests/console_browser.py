"""A person at Chromium: opens pages, types and clicks; each tab notes the browser's errors."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = os.environ.get("KAFKAPY_CONSOLE_PICTURES")
REFUSAL = re.compile(r"Failed to load resource: the server responded with a status of (400|403|409|502)\b")
PATIENCE_MS = 120_000
"""The bound of each wait of a page: a busy machine makes no test fail."""

OpenTab = Callable[..., "Tab"]


class Tab:
    """A page of the browser that notes errors of scripts, of the policy and of requests."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self._errors: list[str] = []
        self._is_refused = False
        page.on("console", lambda said: self._errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.set_default_timeout(PATIENCE_MS)

    @property
    def wrong(self) -> list[str]:
        """The errors, without the refusals that a test asked for."""
        return [text for text in self._errors if not (self._is_refused and REFUSAL.match(text))]

    def open(self, path: str, status: int = 200) -> Any:
        """The page at an address of the console, which answers with the status."""
        response = self.page.goto(self.url + path)
        assert response.status == status, (path, response.status)
        if status >= 400:
            self.forgive()
        return self.page

    def forgive(self) -> None:
        """The test asks for refusals, which the browser notes as errors."""
        self._is_refused = True

    def click(self, name: str, role: str = "button", within: str = "body") -> None:
        """Click the one button or link with this name."""
        self.page.locator(within).get_by_role(role, name=name, exact=True).click()
        self._loaded()

    def press(self, key: str) -> None:
        """Press a key that leads to a page, and wait for the page."""
        with self.page.expect_navigation():
            self.page.keyboard.press(key)

    def choose(self, name: str) -> None:
        """Choose an entry of a page's menu Actions."""
        self.page.locator("main details.menu summary").click()
        self.page.locator("main details.menu").get_by_text(name, exact=True).click()
        self._loaded()

    def fill(self, label: str, text: str) -> None:
        """Type into the field whose label begins with this text."""
        self.field(label).fill(text)

    def pick(self, label: str, option: str) -> None:
        """Choose an option of the list whose label begins with this text."""
        self.field(label).select_option(option)

    def field(self, label: str) -> Any:
        """The field whose label begins with this text."""
        labels = self.page.locator(f"xpath=//main//label[starts-with(normalize-space(), '{label}')]")
        return labels.locator("input, select, textarea")

    def sees(self, text: str, within: str = "main") -> None:
        """Wait until a part of the page has the text."""
        self.page.locator(within).filter(has_text=text).first.wait_for()
        self._loaded()

    def _loaded(self) -> None:
        """The whole page is there, and its scripts listen."""
        self.page.wait_for_load_state("domcontentloaded")

    def told(self, text: str) -> None:
        """Wait for the banner of an action."""
        self.sees(text, "#flashes")

    def text(self, selector: str = "main") -> str:
        """The text of a part of the page as a person sees it."""
        return str(self.page.locator(selector).first.inner_text())

    def tile(self, name: str) -> str:
        """The number of a page that has this name."""
        tile = self.page.locator("dl.tiles div").filter(has=self.page.locator("dt").get_by_text(name, exact=True))
        return str(tile.locator("dd").inner_text())

    def table(self, name: str) -> list[list[str]]:
        """The cells of each row of a table."""
        rows = self.page.get_by_role("region", name=name, exact=True).locator("tbody tr").all()
        return [[text.strip() for text in row.locator("td").all_inner_texts()] for row in rows]

    def row(self, table: str, text: str) -> Any:
        """The row of a table that has this text."""
        return self.page.get_by_role("region", name=table, exact=True).locator("tbody tr").filter(has_text=text)

    def download(self, button: str) -> bytes:
        """The file that a click on a button downloads."""
        with self.page.expect_download() as coming:
            self.click(button)
        return Path(coming.value.path()).read_bytes()

    def picture(self, name: str, *, whole: bool = False) -> None:
        """A picture for the docs, when KAFKAPY_CONSOLE_PICTURES names a directory."""
        if PICTURES:
            self.page.wait_for_timeout(400)
            self.page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=whole)
