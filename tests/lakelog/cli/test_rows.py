"""Lines and files that become records: keys, times, headers, every kind of column."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.cli.rows import Fill, read
from lakelog.cli.source import source
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway


def test_lines_go_in_and_come_out(run: Run, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("lines", 1)  # only one partition keeps them in order
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
    keys = ['"1"', '"2"'] if suffix == "csv" else ["1", "2"]  # CSV has no types
    assert sorted((each["key"], each["timestamp"]) for each in found) == [
        (keys[0], 1_704_067_200_000),
        (keys[1], 1_704_070_800_000),
    ]
    assert sorted(json.dumps(json.loads(each["value"])["id"]) for each in found) == keys


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1_500),
        ('"1970-01-02"', 86_400_000),
        ('"1970-01-01 00:00:01.250"', 1_250),
        ('"1969-12-31T19:00:01-05:00"', 1_000),
        ('"1969-12-31T23:59:59Z"', -1_000),
        ('"1500"', 1_500),
        ("-1000.5", -1_001),
        ('"1969-12-31T23:59:58.9999999Z"', -1_001),
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
    row = {"b": b"\xff", "t": datetime(2024, 1, 1, tzinfo=UTC), "d": Decimal("1.50"), "m": [("k", 1)]}
    kinds = {"b": pa.binary(), "t": pa.timestamp("us", "UTC"), "d": pa.decimal128(9, 2)}
    schema = pa.schema({**kinds, "m": pa.map_(pa.string(), pa.int8())})
    pq.write_table(pa.Table.from_pylist([row], schema), file)
    assert printed(run("produce", topic, str(file), "--key-field", "b", "--json"))["records"] == 1
    found = printed(run("consume", topic, "--json"))
    value = {"b": "/w==", "t": "2024-01-01T00:00:00Z", "d": "1.50", "m": {"k": 1}}
    assert (found["key"], json.loads(found["value"])) == ('"/w=="', value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("-inf")], {"x": float("nan")}])
def test_a_number_that_json_does_not_have_is_refused_with_its_row_and_column(
    run: Run, topic: str, tmp_path: Path, value: object
) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{"id": 1, "f": None}, {"id": 2, "f": value}]), file)
    done = run("produce", topic, str(file), "--key-field", "f")
    wrong(done, USAGE, "row 2, column 'f' cannot be JSON")
    assert done.stderr.endswith("is no number of JSON); convert it; nothing was sent\n")
    assert lines(run("consume", topic)) == []


def test_a_field_of_csv_is_its_text_whatever_other_rows_have(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("zip,n,when\n00501,1e400,2013-01-31T10:00:00+05:30\nNA,-0,\n")
    assert printed(run("produce", topic, str(file), "--json"))["records"] == 2
    assert sorted(lines(run("consume", topic))) == [
        '{"zip":"00501","n":"1e400","when":"2013-01-31T10:00:00+05:30"}',
        '{"zip":"NA","n":"-0","when":null}',
    ]


def test_declared_columns_say_which_fields_of_csv_are_json(
    run: Run, gateway: RunningGateway, tmp_path: Path
) -> None:
    topic = gateway.create_topic("declared-csv", value_columns="zip string, n double")
    file = tmp_path / "rows.csv"
    file.write_text("zip,n\n00501,0.10\n")
    assert printed(run("produce", topic, str(file), "--json"))["records"] == 1
    assert lines(run("consume", topic)) == ['{"zip":"00501","n":0.10}']


@pytest.mark.parametrize("head", ["a", "a,b"])
def test_texts_with_line_ends_stay_whole_in_a_large_csv(tmp_path: Path, head: str) -> None:
    texts = [f"first {n}\nsecond {n}\nthird {n}" for n in range(30_000)] + ["x\n" * 150_000]
    file = tmp_path / "rows.csv"
    file.write_text(head + "\n" + "".join(f'"{text}"{"," if "," in head else ""}\n' for text in texts))
    found = read(source(file, None), Fill(None, None, None, 2**20))
    assert [json.loads(row.value or b"")["a"] for row in found] == texts


KEYS = ["12345678901234567890.25", "1.50", "1e2", "-0", '"a\\/b"', '"x"', '{"b":1, "a":2}', "1e400", "null"]


def test_a_key_field_is_the_json_that_stands_there_as_in_bare_values(
    run: Run, gateway: RunningGateway, topic: str
) -> None:
    rows = "".join(f'{{"k": {key}, "n": {number}}}\n' for number, key in enumerate(KEYS)).encode()
    lines(run("produce", topic, "--format", "ndjson", "--key-field", "k", stdin=rows))
    by_file = {each["value"]: each for each in map(json.loads, lines(run("consume", topic, "--json")))}
    other = gateway.create_topic(f"{topic}-values", 2)
    answer = gateway.client.post(
        f"/topics/{other}/values?key=/k", content=rows, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.status_code == 200, answer.text
    by_body = {each["value"]: each for each in map(json.loads, lines(run("consume", other, "--json")))}
    assert [each["key"] for each in by_file.values() if each["key"]] != []
    for value, each in by_file.items():
        assert each["key"] == by_body[value]["key"]
        assert each["key"] is None or each["partition"] == by_body[value]["partition"]
    assert {each["key"] for each in by_file.values()} == {*KEYS[:-1], None}


def test_null_is_a_tombstone_and_blanks_around_a_value_are_left_out(run: Run, topic: str) -> None:
    lines(run("produce", topic, "--format", "ndjson", stdin=b' {"a": 1} \r\n\t\nnull\n[1]\n'))
    found = [json.loads(line)["value"] for line in lines(run("consume", topic, "--json"))]
    assert {*found} == {'{"a": 1}', None, "[1]"}
