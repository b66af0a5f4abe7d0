"""A real browser at the console, without a network: what it loads and refuses is checked on each page.

Debian's chromium is used; `make setup` installs it where it may.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.kit.support import ROOT

SCREENSHOTS = ROOT / "build" / "screenshots"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = 1280, 420
_SERIOUS = ("serious", "critical")
_NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"

Scheme = Literal["light", "dark"]


def chromium() -> str | None:
    """The path of the browser; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser that reaches this machine alone. The test is skipped, visibly, where there is none."""
    path = chromium()
    if path is None:
        pytest.skip("no browser: `make setup` installs Debian's chromium as root; install it yourself")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage", _NO_NETWORK]
        )
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody at the console of the gateway at `url`, and what went wrong on the way."""

    context: BrowserContext
    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_message)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("request", self._on_request)

    def _on_message(self, message: ConsoleMessage) -> None:
        # A request that is refused is also logged; a test looks at what the page makes of it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).scheme != "data" and not request.url.startswith(self.url):
            self.wrong.append(f"another host: {request.url}")

    def go(self, path: str) -> Page:
        """Open a page of the console."""
        self.page.goto(self.url + path)
        return self.page

    def check(self, name: str) -> None:
        """Assert that the page breaks no policy, asks no other host, and is usable by everybody. Pictures of
        it are kept: light and dark, wide and narrow.
        """
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            findings = [each for each in self._axe() if each["impact"] in _SERIOUS]
            assert findings == [], f"{name}, {scheme}: {json.dumps(findings, indent=1)[:4_000]}"
            self._keep(f"{name}-{scheme}", WIDE)
        self.page.emulate_media(color_scheme="light")
        self._keep(f"{name}-narrow", NARROW)
        assert self._overflow() <= 0, f"{name}: the page is wider than a narrow window"
        self.page.set_viewport_size({"width": WIDE, "height": 900})
        self.check_nothing_wrong()

    def check_nothing_wrong(self) -> None:
        assert self.wrong == []

    def _keep(self, name: str, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 900})
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def _overflow(self) -> int:
        """How many pixels of the page are beyond its window."""
        root = "document.documentElement"
        wider: int = self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth")
        return wider

    def _axe(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [{key: each[key] for key in ("id", "impact", "help", "nodes")} for each in found]


LONG_MS = 60_000
"""How long a page may take on a machine that is busy with others."""


@contextmanager
def visitor(browser: Browser, url: str, scripts: bool = True) -> Iterator[Visitor]:
    """A visitor with a session of their own; without `scripts` the browser runs none."""
    context = browser.new_context(
        viewport={"width": WIDE, "height": 900}, java_script_enabled=scripts, accept_downloads=True
    )
    context.set_default_timeout(LONG_MS)
    expect.set_options(LONG_MS)
    try:
        yield Visitor(context, context.new_page(), url)
    finally:
        context.close()
