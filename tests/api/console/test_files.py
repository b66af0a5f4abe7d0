"""The scripts, the style and the library that pages load."""

import gzip
import hashlib
import re
from pathlib import Path

from api.console.files import file_url
from tests.kit.gateway import RunningGateway
from tests.kit.support import ROOT

STATIC = ROOT / "api" / "console" / "static"
FILES = sorted(path for path in STATIC.iterdir() if path.is_file())
ALL_MAX_BYTES = 300_000
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of the files of uPlot 1.6.32, as they were published."""


def test_a_page_needs_few_bytes() -> None:
    assert len(FILES) > 8
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in FILES) < ALL_MAX_BYTES


def test_the_library_is_as_it_was_published_with_its_licence() -> None:
    for name, digest in VENDORED.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    assert "MIT License" in (STATIC / "uPlot.LICENSE.txt").read_text()


def test_no_file_names_another_host() -> None:
    templates = (ROOT / "api" / "console" / "templates").iterdir()
    for path in [*FILES, *templates]:
        if not path.name.startswith("uPlot"):
            named = re.sub(r"http://www\.w3\.org/2000/svg", "", path.read_text())
            assert not re.search(r"https?://(?!127\.0\.0\.1)|(src|href)=.//", named), path


def test_a_file_is_kept_for_a_year_under_the_url_of_its_content(gateway: RunningGateway) -> None:
    answer = gateway.client.get(file_url("page.js"))
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.text == Path(STATIC / "page.js").read_text()
    plain = gateway.client.get(file_url("page.js"), headers={"Accept-Encoding": "identity"})
    assert (plain.text, "content-encoding" in plain.headers) == (answer.text, False)


def test_a_page_of_before_an_update_gets_the_file_of_now_and_does_not_keep_it(
    gateway: RunningGateway,
) -> None:
    answer = gateway.client.get("/console/files/0123456789ab/page.js")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")


def test_nothing_else_is_given_out(gateway: RunningGateway) -> None:
    for name in ("..%2fpage.py", "page.py", "__init__.py", "base.html", "%00", "page.js%00"):
        assert gateway.client.get(f"/console/files/0123456789ab/{name}").status_code == 404
