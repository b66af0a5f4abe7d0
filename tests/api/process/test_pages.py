"""/docs and /redoc: they come from the gateway as a whole, and load nothing from anywhere else."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.run_credential import is_secured

PAGES = ["/docs", "/redoc"]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class _Loaded(HTMLParser):
    """Parses a page: the URLs that it loads by itself, and whether it contains inline scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline = False
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.urls += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline = self.inline or any(name.startswith("on") for name, _ in attrs)
        self._script = tag == "script"

    def handle_data(self, data: str) -> None:
        self.inline = self.inline or (self._script and bool(data.strip()))


@pytest.mark.parametrize("page", PAGES)
def test_all_that_a_page_loads_comes_from_the_gateway(gateway: RunningGateway, page: str) -> None:
    answer = gateway.client.get(page)
    assert answer.status_code == 200
    loaded = _Loaded(answer.text)
    assert len(loaded.urls) >= 3
    assert not loaded.inline
    assert "//" not in answer.text.replace("<!doctype", "")
    for url in loaded.urls:
        file = gateway.client.get(url)
        assert (file.status_code, len(file.content) > 0) == (200, True), url
        # A style sheet may load more: only what it holds itself.
        if url.endswith(".css"):
            assert re.findall(r"url\(\s*[\"']?(?!data:|[\"']?data:)", file.text) == []
            assert "@import" not in file.text


@pytest.mark.parametrize("page", [*PAGES, "/docs/files/docs.js", "/docs/files/swagger-ui-bundle.js"])
def test_a_page_may_load_and_ask_nothing_but_the_gateway(gateway: RunningGateway, page: str) -> None:
    policy = gateway.client.get(page).headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    allowed = {source for sources in rules.values() for source in sources.split()}
    assert allowed == {"'none'", "'self'", "'unsafe-inline'", "data:", "blob:"}


@pytest.mark.parametrize("name", ["nothing.js", "..%2fcore.py", "%2e%2e/core.py", "__init__.py", ""])
def test_only_the_files_of_the_pages_are_given(gateway: RunningGateway, name: str) -> None:
    assert gateway.client.get(f"/docs/files/{name}").status_code == 404


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: the pages are loaded in a browser only where it is")
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_shows_the_page_without_any_other_host(
    gateway: RunningGateway, page: str, tmp_path: Path
) -> None:
    """No name is resolved but the gateway's. What the policy refuses is in the browser's log: the logo of
    ReDoc's makers, which the page does without.
    """
    assert BROWSER is not None
    if is_secured():
        pytest.skip("the browser is given no credential")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-background-networking"]
    command += [f"--user-data-dir={tmp_path}", "--enable-logging=stderr", "--virtual-time-budget=20000"]
    shown = subprocess.run(
        [*command, "--dump-dom", gateway.url + page], capture_output=True, text=True, check=True, timeout=120
    )
    assert "Append records to a topic" in shown.stdout
    refused = [line for line in shown.stderr.splitlines() if "Content Security Policy" in line]
    assert [line for line in refused if "cdn.redoc.ly/redoc/logo" not in line] == []
