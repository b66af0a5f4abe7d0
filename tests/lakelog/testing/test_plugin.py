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


def run_pytest(directory: Path, tests: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `tests` with the plugin, however lakelog is installed here."""
    (directory / "test_page.py").write_text(tests)
    plugins = ("-p", PLUGIN, "-p", "no:cacheprovider")
    command = [sys.executable, *words, "-m", "pytest", "-q", *plugins, str(directory)]
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


def test_a_run_leaves_nothing_open(process: None, tmp_path: Path) -> None:
    """Each warning is an error, also one of what was forgotten, and each error is told."""
    tests = """
import gc, lakelog, pytest
from lakelog.testing import gateway
def test_one(lakelog_gateway, lakelog_topic):
    lakelog_gateway.kill()
    lakelog_gateway.start()
def test_two(lakelog_gateway):
    lakelog_gateway._process.kill()
    lakelog_gateway._process.wait()
def test_three():
    with pytest.raises(lakelog.Unreachable), gateway(num_partitions=0):
        pass
    gc.collect()
"""
    done = run_pytest(tmp_path, tests, "-W", "error")
    assert "3 passed" in done.stdout, done.stdout
    told = f"{done.stdout}\n{done.stderr}"
    assert (done.returncode, done.stderr.count("Exception ignored")) == (0, 0), told


def test_pytest_finds_the_plugin_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"lakelog": PLUGIN}


@pytest.mark.parametrize("module", ["api", "asyncio", "fastapi", "httpx", "pyarrow", "ssl"])
def test_the_plugin_loads_nothing_that_takes_long(module: str) -> None:
    program = f"import sys, {PLUGIN}; print({module!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
