"""A real Chromium for tests of the console; the machine's own, never one that is downloaded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.waiting import PATIENCE

_MILLISECONDS = PATIENCE * 1000
CHROMIUM = shutil.which("chromium")
MISSING = "there is no Chromium: apt-get install chromium"
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window, and without a memory of earlier ones."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS.split(), timeout=_MILLISECONDS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page that must not complain, and must ask nobody but its server."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(viewport={"width": 1360, "height": 850}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(_MILLISECONDS)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.complaints.append(f"asked {request.url}")

    def open(self, path: str) -> Any:
        """Show a page of the console, from nothing."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#/{path}")
        self.page.wait_for_selector(".page[data-ready=true]")
        return self.page

    def close(self) -> None:
        """Leave, and hear whether anything was wrong."""
        self.context.close()
        assert self.complaints == []


def until(page: Any, expression: str) -> None:
    """Wait for something to be so; asked from outside, for the page's policy lets nobody evaluate text inside."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(f"() => Boolean({expression})"):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)
