"""The site of the pages: its versions, and the page of the notebook."""

import json
import re
from pathlib import Path

from scripts.site import list_versions, notebook_page


def test_a_site_lists_its_versions_and_leads_to_the_newest(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0rc1", "assets"):
        (tmp_path / name).mkdir()
    (tmp_path / "1.0").write_text("a file is no version")
    assert list_versions(tmp_path) == ["0.10.0", "0.10.0rc1", "0.9.0"]
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(each["version"], each["aliases"]) for each in listed] == [
        ("0.10.0", ["latest"]),
        ("0.10.0rc1", []),
        ("0.9.0", []),
    ]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text()


def test_the_notebook_is_a_page_with_its_outputs_and_plots(tmp_path: Path) -> None:
    page = notebook_page(tmp_path)
    assert page.startswith("# A notebook\n")
    assert "producer.send(" in page
    assert "5000 flights were late" in page
    plots = re.findall(r"!\[.*\]\((.*\.png)\)", page)
    assert len(plots) == 2
    assert all((tmp_path / plot).read_bytes().startswith(b"\x89PNG") for plot in plots)
