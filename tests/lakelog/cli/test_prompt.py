"""The prompt of `lakelog sql`: which lines are a statement, what completes a word, a session."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from signal import SIGINT
from threading import Timer

import pytest

from lakelog.cli.prompt import FIRST, Shell, candidates, is_whole
from tests.kit.support import WAIT_S, wait_until


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("select 1;", True),
        ("select 1;\n", True),
        ("select 1", False),
        ("select ';'", False),
        ("select ';", False),
        ("select 'it''s;' ;", True),
        ('select ";"', False),
        ("select 1 -- ;", False),
        ("select 1; -- it's done", True),
        ("select /* ; */ 1", False),
        ("select /* ;", False),
        ("-- ask\nselect 1;", True),
    ],
)
def test_a_semicolon_ends_a_statement(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


COLUMNS = {"flights": ["carrier", "dep_delay"], "big.topic": ["offset"]}


def nothing(_: object) -> None:
    raise AssertionError


SHELL = Shell(nothing, nothing, lambda: [*COLUMNS, "fares"], COLUMNS.__getitem__, nothing)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("select * from f", ["flights", "fares", "from"]),
        ("SELECT * FR", ["FROM"]),
        ("select * from b", ['"big.topic"', "by", "between"]),
        ('select * from "b', ['"big.topic"']),
        ("select * from flights where c", ["carrier", "case", "cast", "count"]),
        ('select * from "big.topic" where of', ["offset", "offset"]),
        ("\\d fl", ["flights"]),
        (".f", [".format"]),
        ("\\", ["\\d"]),
        ("select zz", []),
    ],
)
def test_a_word_becomes_a_table_a_column_or_a_keyword(line: str, found: list[str]) -> None:
    assert candidates(SHELL, line.rpartition(" ")[2], line) == found


class Terminal:
    """A session of `lakelog sql`, of which the test is the terminal."""

    def __init__(self, root: Path, home: Path) -> None:
        self._fd, theirs = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(home), "TERM": "dumb", "COLUMNS": "100"}
        command = [sys.executable, "-m", "lakelog", "sql", "--data", str(root)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._ending = Timer(WAIT_S, self.process.kill)  # then reading fails
        self._ending.start()
        self.read_to(FIRST)

    def read_to(self, end: str) -> str:
        shown = ""
        while not shown.endswith(end):
            shown += os.read(self._fd, 4_096).decode()
        return shown

    def interrupt(self) -> None:
        """Send it SIGINT while it waits for a line: Python misses one that comes just before it does."""
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            wait_until(lambda: "\nState:\tS" in status.read_text(), "it waits for a line")
        self.process.send_signal(SIGINT)

    def left(self) -> int:
        """The exit code of the session."""
        self._ending.cancel()
        os.close(self._fd)
        return self.process.wait(WAIT_S)

    def type(self, text: str, end: str = FIRST) -> str:
        os.write(self._fd, text.encode())
        return self.read_to(end)


def test_a_session_answers_completes_and_remembers(root: Path, tmp_path: Path) -> None:
    terminal = Terminal(root, tmp_path)
    assert "sales_json" in terminal.type("\\d\n")
    assert "value_text" in terminal.type("\\d sales\n")
    terminal.type("select count(*) as n, NULL as m\n", "... ")
    assert "6  NULL" in terminal.type("from sales wher\t parti\t >= 0;\n")
    assert "No field named nope" in terminal.type("select nope from sales;\n")
    terminal.type("select\n", "... ")
    terminal.interrupt()
    terminal.read_to(FIRST)
    assert "no format 'x'" in terminal.type(".format x\n")
    terminal.type(".format ndjson\n")
    assert '{"a":1}' in terminal.type("select 1 as a;\n")
    terminal.type(".quit\n", "\n")
    assert terminal.left() == 0
    remembered = (tmp_path / "lakelog" / "sql_history").read_text().splitlines()
    assert "select count(*) as n, NULL as m from sales where partition >= 0;" in remembered
