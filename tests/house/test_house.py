"""Rules for the whole repository: names of bounds, versions, locks, and how tests wait."""

import ast
import re
import tomllib

import pytest

from log_tables.table.commit import ENGINE
from log_tables.version import VERSION
from scripts.long_description import LongDescription
from tests.kit.support import ROOT, free_port, listens, wait_until

PACKAGES = sorted(marker.parent for marker in ROOT.glob("*/py.typed"))
FOLDERS = [*PACKAGES, ROOT / "tests", ROOT / "bench", ROOT / "scripts"]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
SLEEPS = re.compile(r"\b(time|asyncio|anyio)\.sleep\(|\bSystemClock\(\)\.pause\(")


def test_a_bound_has_a_name_of_its_own() -> None:
    """A second one of the same name would take the place of the first."""
    body = ast.parse((ROOT / "log_tables/limits.py").read_text()).body
    assigned = [each for each in body if isinstance(each, ast.Assign)]
    names = [target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)]
    assert len(names) > 50
    assert [name for name in names if names.count(name) > 1] == []


def test_no_test_sleeps() -> None:
    sleeping = [path.name for path in (ROOT / "tests").rglob("*.py") if SLEEPS.search(path.read_text())]
    assert sleeping == []


def test_the_package_has_the_version_that_its_code_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert f"lakelog/{VERSION}" == ENGINE


def test_the_long_description_of_the_package_has_no_link_that_only_the_repository_has() -> None:
    metadata: dict[str, object] = {}
    LongDescription(str(ROOT), {}).update(metadata)
    links = re.findall(r"\]\(([^)]*)\)", str(metadata["readme"]))
    assert links
    assert all(link.startswith(("https://", "http://")) for link in links)


def test_the_locks_name_no_host() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text()


def test_a_condition_that_never_holds_is_named() -> None:
    with pytest.raises(AssertionError, match="after 0 s still not: pigs fly"):
        wait_until(lambda: False, "pigs fly", timeout_s=0)


def test_a_free_port_is_free() -> None:
    assert not listens(free_port())
