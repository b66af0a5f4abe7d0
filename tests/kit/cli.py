"""Run commands as a shell would, and read their output."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lakelog.cli import app
from tests.kit.gateway import RunningGateway

FAILED, USAGE, UNREACHABLE = 1, 2, 3


Run = Callable[..., Result]


@pytest.fixture
def run(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as the shell would, with the gateway's URL in the environment."""
    monkeypatch.setenv("LAKELOG_URL", gateway.url)
    monkeypatch.setenv("LAKELOG_WAIT", "0")
    monkeypatch.setenv("LAKELOG_CONTEXT", "")

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["lakelog", *arguments])
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def on_root(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as the shell would, with `--data` for one root."""
    monkeypatch.setenv("LAKELOG_CONTEXT", "")

    def run(*arguments: str) -> Result:
        words = [*arguments, "--data", str(store_root)]
        monkeypatch.setattr(sys, "argv", ["lakelog", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


def printed(done: Result) -> Any:
    """The JSON document that a command printed."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def lines(done: Result) -> list[str]:
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def wrong(done: Result, exit_code: int, says: str) -> None:
    """Assert that a command ended with this exit code, one line of explanation, and nothing else."""
    assert done.exit_code == exit_code, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("lakelog: ")
    assert says in line
