"""`lakelog sql`, over the files of a stopped gateway."""

import sys
from pathlib import Path

import pytest

from lakelog.cli.common import printable
from lakelog.cli.record_format import formatted, value_line
from log_tables.record import Record
from tests.kit.cli import FAILED, USAGE, Run, lines, printed


def test_a_question_is_answered_from_the_files(run: Run, root: Path) -> None:
    query = 'SELECT "partition", max("offset") AS last, count(*) AS n FROM sales GROUP BY 1 ORDER BY 1'
    assert printed(run("sql", query, "--data", str(root), "--json")) == [
        {"partition": 0, "last": 2, "n": 3},
        {"partition": 1, "last": 2, "n": 3},
    ]
    shown = lines(run("sql", "SELECT sum(amount) AS total FROM sales_json", "--data", str(root)))
    assert [line.strip() for line in shown] == ["total", "15", "(1 row)"]
    for query in ("SELECT", "SELECT * FROM nowhere"):
        done = run("sql", query, "--data", str(root))
        assert done.exit_code in (FAILED, USAGE)
        assert done.stderr.startswith("lakelog: ")
        assert "Traceback" not in done.stderr


def test_values_do_not_control_the_terminal_that_they_are_shown_on(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printable("\x1b[2J\x9b\x7f\ttab\n\ud800é") == "\\x1b[2J\\x9b\\x7f\ttab\n\\ud800é"
    query = "SELECT chr(27) || '[2J [/x] [red]y :smile:' AS \"[b]\""
    shown = lines(run("sql", query, "--data", str(root)))
    assert [line.strip() for line in shown[:2]] == ["[b]", "\\x1b[2J [/x] [red]y :smile:"]
    record = Record(b"\x1b[2J\xff")
    for show in (value_line, formatted("%s\\n")):
        assert show("t", 0, record) == b"\x1b[2J\xff\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for show in (value_line, formatted("%s\\n")):
        assert show("t", 0, record) == b"\\x1b[2J\\xff\n"


def test_bytes_are_text_in_the_json_of_an_answer(run: Run, root: Path) -> None:
    query = """SELECT arrow_cast('é', 'Binary') AS key, decode('ff', 'hex') AS value, NULL AS nothing,
        make_array(arrow_cast('a', 'Binary')) AS list, named_struct('value', decode('ff', 'hex')) AS struct"""
    assert printed(run("sql", query, "--data", str(root), "--json")) == [
        {
            "key": "é",
            "value_base64": "/w==",
            "nothing": None,
            "list": ["a"],
            "struct": {"value_base64": "/w=="},
        }
    ]
    (row,) = printed(
        run(
            "sql", 'SELECT * FROM sales WHERE "offset" = 0 AND "partition" = 1', "--data", str(root), "--json"
        )
    )
    assert (row["key"], row["value"]) == (None, '{"amount":1}')


def test_a_long_answer_is_cut_for_people_and_whole_in_json(run: Run, root: Path) -> None:
    query = "SELECT value FROM generate_series(1, 1500)"
    shown = lines(run("sql", query, "--data", str(root)))
    assert (len(shown), shown[-1]) == (1002, "(500 more rows; --json prints all)")
    assert len(printed(run("sql", query, "--data", str(root), "--json"))) == 1500
