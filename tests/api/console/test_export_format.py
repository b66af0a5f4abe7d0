"""The formats of an export: each gives back the records that went in."""

import csv
import io
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from api.console.pages.export import CSV_COLUMNS, EXPORT_SCHEMA, WRITERS
from log_tables.limits import ROW_GROUP_TARGET_BYTES
from log_tables.record import Record, input_batch, timestamp_text, to_records, with_offsets
from log_tables.sql.answer_file import FileFormat

PART = (
    st.none() | st.binary(max_size=8) | st.sampled_from(['=1+1"', "a,b\r\n", "\x00", "", "ä"]).map(str.encode)
)
RECORD = st.builds(
    Record,
    PART,
    PART,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), PART), max_size=2),
    st.integers(0, 2**50),
)


def batch_of(records: list[Record], first: int = 0) -> pa.RecordBatch:
    return with_offsets([input_batch(records, 0)], np.arange(first, first + len(records), dtype=np.int64))


def exported(form: FileFormat, parts: list[list[Record]]) -> bytes:
    """The file of some parts, each of a partition of its own."""
    writer = WRITERS[form]()
    made = [writer.add(number, batch_of(part)) for number, part in enumerate(parts) if part]
    return b"".join([*made, writer.end()])


def rows_of(parts: list[list[Record]]) -> list[tuple[int, int, Record]]:
    return [(number, at, record) for number, part in enumerate(parts) for at, record in enumerate(part)]


def content(row: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return b64decode(row[f"{name}_base64"])
    text: str | None = row[name]
    return None if text is None else text.encode()


@given(st.lists(st.lists(RECORD, max_size=5), max_size=3))
def test_ndjson_has_every_byte(parts: list[list[Record]]) -> None:
    lines = [json.loads(line) for line in exported("ndjson", parts).splitlines()]
    found = [
        (
            row["partition"],
            row["offset"],
            row["timestamp"],
            content(row, "key"),
            content(row, "value"),
            [(each["key"], content(each, "value")) for each in row["headers"]],
        )
        for row in lines
    ]
    assert found == [
        (number, at, (each.timestamp_us or 0) // 1000, each.key, each.value, [*each.headers])
        for number, at, each in rows_of(parts)
    ]


@given(st.lists(st.lists(RECORD, max_size=5), max_size=3))
def test_csv_has_every_text_and_a_null_is_not_an_empty_text(parts: list[list[Record]]) -> None:
    text = exported("csv", parts).decode()
    head, *found = csv.reader(io.StringIO(text, newline=""))
    assert tuple(head) == CSV_COLUMNS
    expected = [
        [
            str(number),
            str(at),
            timestamp_text(each.timestamp_us or 0),
            *fields(each.key),
            *fields(each.value),
        ]
        for number, at, each in rows_of(parts)
    ]
    assert [row[:-1] for row in found] == expected


def fields(data: bytes | None) -> list[str]:
    """A key or value as text, and as base64."""
    try:
        return ["" if data is None else data.decode(), ""]
    except UnicodeDecodeError:
        return ["", b64encode(data or b"").decode()]


def test_csv_quotes_what_is_there_and_changes_no_formula() -> None:
    text = exported("csv", [[Record(b"", None), Record(None, b"=cmd()")]]).decode()
    _, first, second = text.splitlines()
    assert first.endswith(',,,"",,')
    assert second.endswith(',"=cmd()",,,,')


@given(st.lists(st.lists(RECORD, max_size=5), max_size=3))
def test_parquet_is_one_file_of_the_same_rows(parts: list[list[Record]]) -> None:
    table = pq.read_table(pa.BufferReader(exported("parquet", parts)))
    assert table.schema.names == EXPORT_SCHEMA.names
    assert table["partition"].to_pylist() == [number for number, _, _ in rows_of(parts)]
    found = [(each.offset, each.key, each.value, [*each.headers]) for each in to_records(table)]
    assert found == [(at, each.key, each.value, [*each.headers]) for _, at, each in rows_of(parts)]


def test_parquet_is_handed_on_row_group_by_row_group() -> None:
    writer = WRITERS["parquet"]()
    noise = b"".join(sha256(b"%d" % number).digest() for number in range(ROW_GROUP_TARGET_BYTES // 32))
    big = [Record(bytes([number]) + noise) for number in range(4)]
    made = [writer.add(0, batch_of([record], at)) for at, record in enumerate(big)]
    assert all(len(each) >= ROW_GROUP_TARGET_BYTES for each in made)
    end = writer.end()
    assert len(end) < 10_000
    assert pq.ParquetFile(pa.BufferReader(b"".join([*made, end]))).num_row_groups == 4


def test_an_export_of_nothing_is_a_file_all_the_same() -> None:
    assert exported("ndjson", []) == b""
    assert exported("csv", []).decode().strip() == ",".join(CSV_COLUMNS)
    assert pq.read_table(pa.BufferReader(exported("parquet", []))).num_rows == 0
