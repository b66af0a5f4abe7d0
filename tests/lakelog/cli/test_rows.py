"""Lines and files that become records: keys, times, headers, every kind of column."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway


def test_lines_go_in_and_come_out(run: Run, topic: str) -> None:
    text = "first\nzwei ü\n\nlast\r\n".encode()
    done = run("produce", topic, "-", stdin=text)
    assert lines(done)[0].startswith(f"4 records to topic {topic} in ")
    assert lines(run("consume", topic)) == ["first", "zwei ü", "", "last"]


def test_lines_have_keys_and_all_records_headers(run: Run, topic: str) -> None:
    flags = ("--key-separator", r"\t", "--header", "source=files", "--header", "source=two=2")
    assert lines(run("produce", topic, *flags, stdin=b'k\t{"a": 1}\n\t\n'))[0].startswith("2 records ")
    found = [json.loads(line) for line in lines(run("consume", topic, "--json"))]
    assert sorted((each["key"], each["value"]) for each in found) == [("", ""), ("k", '{"a": 1}')]
    headers = [{"key": "source", "value": "files"}, {"key": "source", "value": "two=2"}]
    assert [each["headers"] for each in found] == [headers, headers]


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_rows_of_a_file_have_keys_and_times(run: Run, topic: str, tmp_path: Path, suffix: str) -> None:
    rows = [{"id": 1, "at": "2024-01-01T00:00:00Z"}, {"id": 2, "at": "2024-01-01T01:00:00+00:00"}]
    file = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif suffix == "csv":
        file.write_text("id,at\n" + "".join(f"{row['id']},{row['at']}\n" for row in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    flags = ("--key-field", "id", "--timestamp-field", "at", "--json")
    done = printed(run("produce", topic, str(file), *flags))
    assert (done["topic"], done["records"]) == (topic, 2)
    found = [json.loads(line) for line in lines(run("consume", topic, "--json"))]
    assert sorted((each["key"], each["timestamp"]) for each in found) == [
        ("1", 1_704_067_200_000),
        ("2", 1_704_070_800_000),
    ]
    assert sorted(json.loads(each["value"])["id"] for each in found) == [1, 2]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1_500),
        ('"1970-01-02"', 86_400_000),
        ('"1970-01-01 00:00:01.250"', 1_250),
        ('"1969-12-31T19:00:01-05:00"', 1_000),
        ('"1969-12-31T23:59:59Z"', -1_000),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601_in_utc(
    run: Run, topic: str, text: str, milliseconds: int
) -> None:
    line = f'{{"at": {text}}}'.encode()
    lines(run("produce", topic, "--format", "ndjson", "--timestamp-field", "at", stdin=line))
    assert printed(run("consume", topic, "--json"))["timestamp"] == milliseconds


@pytest.mark.parametrize("text", ['"noon"', "true", "1e30", "[]", "null", '"2024-13-01"'])
def test_what_is_no_time_is_refused_with_its_value(
    run: Run, gateway: RunningGateway, topic: str, text: str
) -> None:
    line = f'{{"at": {text}}}'.encode()
    done = run("produce", topic, "--format", "ndjson", "--timestamp-field", "at", stdin=line)
    wrong(done, USAGE, "at=")
    assert lines(run("consume", topic)) == []


def test_what_python_takes_for_json_and_nobody_else_does_is_refused(run: Run, topic: str) -> None:
    done = run("produce", topic, "--format", "ndjson", stdin=b'{"at": NaN}')
    wrong(done, USAGE, "line 1 is not JSON")


def test_every_kind_of_column_becomes_json(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "kinds.parquet"
    row = {"f": float("nan"), "b": b"\xff", "t": datetime(2024, 1, 1, tzinfo=UTC), "d": Decimal("1.50")}
    pq.write_table(pa.Table.from_pylist([row]), file)
    assert printed(run("produce", topic, str(file), "--key-field", "b", "--json"))["records"] == 1
    found = printed(run("consume", topic, "--json"))
    value = {"f": None, "b": "/w==", "t": "2024-01-01T00:00:00Z", "d": "1.50"}
    assert (found["key_base64"], json.loads(found["value"])) == ("/w==", value)


def test_the_last_row_of_a_csv_may_change_the_type_of_a_column(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "late.csv"
    rows = [f"{n},{'x' * 300_000}" for n in (1, 2, 3, 4, 5, "six")]  # more than is looked at to guess types
    file.write_text("\n".join(["n,long", *rows, ""]))
    assert printed(run("produce", topic, str(file), "--json"))["records"] == 6
    found = (json.loads(line)["n"] for line in lines(run("consume", topic)))
    assert sorted(found) == ["1", "2", "3", "4", "5", "six"]


def test_keys_that_are_no_text_are_json(run: Run, topic: str) -> None:
    rows = b'{"k": true}\n{"k": {"a": 1}}\n{"k": null}\n'
    lines(run("produce", topic, "--format", "ndjson", "--key-field", "k", stdin=rows))
    found = [json.loads(line)["key"] for line in lines(run("consume", topic, "--json"))]
    assert sorted(found, key=str) == [None, "true", '{"a":1}']
