"""The examples that the help of each command ends with."""

import re
import shlex
from typing import Any

import pytest
import typer

from lakelog.cli import app
from lakelog.cli.examples import EXAMPLES
from tests.lakelog.cli.test_exit_code import commands

LINES = [(command, line) for command, lines in EXAMPLES.items() for line in lines]


def test_each_command_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(" ".join(words) for words, _ in commands())


@pytest.mark.parametrize(("command", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_is_one_that_the_command_takes(command: str, line: str) -> None:
    typed = re.search(rf"(^|\\| )lakelog {command}(?P<rest>[^|<>]*)", line)
    assert typed is not None
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    found.make_context(command, shlex.split(typed["rest"]))
