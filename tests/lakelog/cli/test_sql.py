"""`lakelog sql`, over the files of a stopped gateway."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from lakelog.cli.commands.sql import AnswerFormat, print_answer
from lakelog.cli.common import console, printable
from lakelog.cli.record_format import Formats, formatted, value_line
from log_tables.record import Record
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong


def test_without_a_query_it_says_so(run: Run, root: Path) -> None:
    for asked in (("sql", "  "), ("sql",), ("sql", "--file", "-")):
        wrong(run(*asked, "--data", str(root), stdin=b"\n"), USAGE, "the SQL is empty")


def test_a_question_is_answered_from_the_files(run: Run, root: Path) -> None:
    query = 'SELECT "partition", max("offset") AS last, count(*) AS n FROM sales GROUP BY 1 ORDER BY 1'
    assert printed(run("sql", query, "--data", str(root), "--format", "json")) == [
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


def test_what_was_left_out_is_said_aside(run: Run, root: Path) -> None:
    query = 'SELECT count(*) AS n FROM sales WHERE "partition" = 1'
    done = run("sql", query, "--data", str(root), "--format", "csv", "--stats")
    assert done.stdout.splitlines() == ['"n"', "3"]
    assert re.fullmatch(r"sales: (\d+) of \d+ files? left out, \d+ read\n", done.stderr)
    assert not run("sql", query, "--data", str(root)).stderr


def test_values_do_not_control_the_terminal_that_they_are_shown_on(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printable("\x1b[2J\x9b\x7f\ttab\n\ud800é") == "\\x1b[2J\\x9b\\x7f\ttab\n\\ud800é"
    query = "SELECT chr(27) || '[2J [/x] [red]y :smile:' AS \"[b]\""
    shown = lines(run("sql", query, "--data", str(root)))
    assert [line.strip() for line in shown[:2]] == ["[b]", "\\x1b[2J [/x] [red]y :smile:"]
    record = Record(b"\x1b[2J\xff")
    for show in (value_line(Formats()), formatted("%s\\n", Formats())):
        assert show("t", 0, record) == b"\x1b[2J\xff\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for show in (value_line(Formats()), formatted("%s\\n", Formats())):
        assert show("t", 0, record) == b"\\x1b[2J\\xff\n"


def test_bytes_are_text_in_the_json_of_an_answer(run: Run, root: Path) -> None:
    query = """SELECT arrow_cast('é', 'Binary') AS key, decode('ff', 'hex') AS value, NULL AS nothing,
        make_array(arrow_cast('a', 'Binary')) AS list, named_struct('value', decode('ff', 'hex')) AS struct"""
    assert printed(run("sql", query, "--data", str(root), "--format", "json")) == [
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
            "sql",
            'SELECT * FROM sales WHERE "offset" = 0 AND "partition" = 1',
            "--data",
            str(root),
            "--format",
            "json",
        )
    )
    assert (row["key"], row["value"]) == (None, '{"amount":1}')


def ask(run: Run, root: Path, query: str, form: str = "table", stdin: bytes = b"") -> Result:
    done = run("sql", query, "--data", str(root), "--format", form, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done


WIDE = "SELECT repeat('x', 300) AS a, repeat('y', 300) AS b, E'1\\n2' AS c FROM generate_series(1, 1500)"


def test_nothing_is_cut_or_broken_in_a_pipe(run: Run, root: Path) -> None:
    shown = lines(ask(run, root, WIDE))
    assert len(shown) == 1502
    assert shown[1].split() == ["x" * 300, "y" * 300, "1\\n2"]
    assert shown[-1] == "(1,500 rows)"


def test_a_terminal_shows_the_first_rows_and_wide_ones_vertically(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa

    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.cache_clear()
    try:
        for width, count in ((10, 1_003), (60, 4_001)):
            table = pa.table({name: ["x" * width] * 1_500 for name in ("a", "b", "c")})
            print_answer(table.to_reader(), AnswerFormat.TABLE)
            shown = capsys.readouterr().out.splitlines()
            assert shown[-1] == "(500 more rows; --format csv prints all)"
            assert len(shown) == count - (1 if width == 10 else 0)
    finally:
        console.cache_clear()
    assert shown[:3] == ["-[ row 1 ]".ljust(40, "-"), "a  " + "x" * 60, "b  " + "x" * 60]


def test_no_value_is_told_from_an_empty_text(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa

    shown = lines(ask(run, root, "SELECT NULL AS n, '' AS e, 1 AS i"))
    assert shown[:2] == ["n     e  i", "NULL     1"]
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.cache_clear()
    try:
        for wide in (1, 50):
            table = pa.table({"a": pa.array([None], "string"), "b": ["x" * wide]})
            print_answer(table.to_reader(), AnswerFormat.TABLE)
            assert "\x1b[2mNULL\x1b[0m" in capsys.readouterr().out
    finally:
        console.cache_clear()


TYPES = """SELECT 1 AS i, 2.5 AS f, 'a,"b' AS s, '' AS e, NULL AS n, decode('c3bc', 'hex') AS b,
    decode('ff', 'hex') AS x, make_array(1, 2) AS l, named_struct('k', decode('ff', 'hex')) AS o,
    timestamp '2024-01-02T03:04:05Z' AS t, interval '1 day' AS d, true AS y, cast(1.5 AS decimal(3, 1)) AS m
"""


def test_csv_has_every_type(run: Run, root: Path) -> None:
    (row,) = csv.DictReader(io.StringIO(ask(run, root, TYPES, "csv").stdout))
    assert row.pop("t").startswith("2024-01-02 03:04:05")
    assert row.pop("d")
    assert row == {
        "i": "1",
        "f": "2.5",
        "s": 'a,"b',
        "e": "",
        "n": "",
        "b": "ü",
        "x": "\\xff",
        "l": "[1,2]",
        "o": '{"k_base64":"/w=="}',
        "y": "true",
        "m": "1.5",
    }
    raw = ask(run, root, "SELECT '' AS e, NULL AS n", "csv").stdout
    assert raw.splitlines() == ['"e","n"', '"",']


NANOSECONDS = "SELECT arrow_cast(1, 'Timestamp(Nanosecond, None)') AS t, make_array(now()) AS l"


SPECIAL = """SELECT cast('NaN' AS double) AS a, cast('-inf' AS float) AS b,
    make_array(cast('inf' AS double)) AS c, interval '1 month' AS d,
    arrow_cast(-1, 'Timestamp(Nanosecond, None)') AS e, map(make_array('k'), make_array(1)) AS f"""


def test_values_that_json_does_not_have_are_shown_by_their_names(run: Run, root: Path) -> None:
    row = {
        "a": "NaN",
        "b": "-Infinity",
        "c": ["Infinity"],
        "d": "P1M",
        "e": "1969-12-31T23:59:59.999999999",
        "f": {"k": 1},
    }
    assert printed(ask(run, root, SPECIAL, "json")) == [row]
    assert json.loads(ask(run, root, SPECIAL, "ndjson").stdout) == row
    (shown,) = csv.DictReader(io.StringIO(ask(run, root, SPECIAL, "csv").stdout))
    assert (shown["a"], shown["b"], shown["c"], shown["d"]) == ("nan", "-inf", '["Infinity"]', "P1M")
    assert (shown["e"], shown["f"]) == ("1969-12-31 23:59:59.999999999", '{"k":1}')
    assert "P1M  1969-12-31T23:59:59.999999999" in ask(run, root, SPECIAL).stdout


def test_times_shorter_than_microseconds_are_shown_too(run: Run, root: Path) -> None:
    for form in ("table", "csv", "ndjson", "json"):
        assert "1970-01-01" in ask(run, root, NANOSECONDS, form).stdout
    wrong(
        run("sql", "SELECT arrow_cast(9223372036854775807, 'Timestamp(Second, None)')", "--data", str(root)),
        USAGE,
        "use --format parquet",
    )


def test_ndjson_is_a_line_a_row_and_json_one_array(run: Run, root: Path) -> None:
    rows = [json.loads(line) for line in lines(ask(run, root, TYPES, "ndjson"))]
    assert rows == printed(ask(run, root, TYPES, "json"))
    assert rows[0]["x_base64"] == "/w=="
    query = "SELECT value FROM generate_series(1, 1500)"
    assert len(lines(ask(run, root, query, "ndjson"))) == len(printed(ask(run, root, query, "json"))) == 1500
    assert ask(run, root, "SELECT 1 AS a WHERE false", "ndjson").stdout == ""
    assert printed(ask(run, root, "SELECT 1 AS a WHERE false", "json")) == []


def test_parquet_keeps_the_types(run: Run, root: Path) -> None:
    done = ask(run, root, "SELECT value, offset, timestamp FROM sales ORDER BY offset, partition", "parquet")
    table = pq.read_table(io.BytesIO(done.stdout_bytes))
    assert [str(kind) for kind in table.schema.types] == ["binary", "int64", "timestamp[us, tz=UTC]"]
    assert table.num_rows == 6


def test_objects_need_names_of_their_own(run: Run, root: Path) -> None:
    query = "SELECT a.offset, b.offset FROM sales a JOIN sales b ON a.offset = b.offset"
    for form in ("json", "ndjson", "parquet"):
        done = run("sql", query, "--data", str(root), "--format", form)
        assert done.exit_code == USAGE
        assert "2 columns named 'offset'" in done.stderr
    assert len(lines(ask(run, root, query, "csv"))) == 13


def test_errors_are_json_where_the_answer_is(run: Run, root: Path) -> None:
    for form in (("--format", "json"), ("--format=ndjson",)):
        done = run("sql", "SELECT * FROM nowhere", "--data", str(root), *form)
        assert json.loads(done.stderr)["error"] == "invalid_argument"


def test_a_query_may_be_in_a_file_or_come_from_standard_input(run: Run, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_text("-- ü\nSELECT count(*) AS n\nFROM sales;\n")
    data = ("--data", str(root), "--format", "json")
    assert printed(run("sql", "--file", str(file), *data)) == [{"n": 6}]
    assert printed(run("sql", "--file", "-", *data, stdin=file.read_bytes())) == [{"n": 6}]
    assert printed(run("sql", *data, stdin=file.read_bytes())) == [{"n": 6}]
    wrong(run("sql", "SELECT 1", "--file", str(file), *data[:2]), USAGE, "use one of them")
    wrong(run("sql", "--file", str(tmp_path), *data[:2]), USAGE, "is a directory")
    file.write_bytes(b"SELECT '\xff'")
    wrong(run("sql", "--file", str(file), *data[:2]), USAGE, "not UTF-8 at byte 8")


def test_what_there_is_can_be_listed_and_described(run: Run, root: Path) -> None:
    listed = {row["name"]: row["kind"] for row in printed(ask(run, root, "SHOW TABLES", "json"))}
    assert (listed["sales"], listed["sales_json"], listed["consumer_lag"]) == (
        "topic",
        "fields of JSON",
        "table",
    )
    names = [row["column_name"] for row in printed(ask(run, root, "DESCRIBE sales_json", "json"))]
    assert names == ["topic", "partition", "offset", "timestamp", "key", "key_text", "amount", "_raw"]
    plan = ask(run, root, "EXPLAIN SELECT count(*) FROM sales WHERE offset < 2").stdout
    assert "offset < 2" in plan
    assert "\\n" not in plan, "a step of a plan has a line of its own"
