"""The plugin of pytest: the tests of docs/testing-programs.md run with it, as a user's would."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.kit.support import ROOT

PAGE = (ROOT / "docs" / "testing-programs.md").read_text()
PLUGIN = "lakelog.testing.plugin"


def run_pytest(directory: Path, tests: str) -> "subprocess.CompletedProcess[str]":
    """Run `tests` with the plugin, however lakelog is installed here."""
    (directory / "test_page.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def test_the_tests_of_the_page_pass(process: None, tmp_path: Path) -> None:
    blocks = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def test_" in code]
    done = run_pytest(tmp_path, "\n".join(blocks))
    assert f"{sum(code.count('def test_') for code in blocks)} passed" in done.stdout, done.stdout


def test_a_fault_ends_with_its_test(process: None, tmp_path: Path) -> None:
    tests = """
import lakelog
def test_one(lakelog_gateway):
    lakelog_gateway.refuse(times=None, error=lakelog.UnknownTopic)
    lakelog_gateway.pause()
def test_two(lakelog_gateway):
    assert lakelog.Client(lakelog_gateway.url).topics() == []
    lakelog_gateway.kill()
def test_three(lakelog_topic, lakelog_gateway):
    assert lakelog.Client(lakelog_gateway.url).topics() == [lakelog_topic]
"""
    done = run_pytest(tmp_path, tests)
    assert "3 passed" in done.stdout, done.stdout


def test_pytest_finds_the_plugin_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"lakelog": PLUGIN}


@pytest.mark.parametrize("module", ["api", "fastapi", "httpx", "pyarrow"])
def test_the_plugin_loads_nothing_that_takes_long(module: str) -> None:
    program = f"import sys, {PLUGIN}; print({module!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
