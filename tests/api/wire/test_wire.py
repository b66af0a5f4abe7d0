"""The codecs of the wire, without a gateway: round trips, and garbage that only typed errors answer."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.errors import MalformedBody, NotJson, RequestTooLarge
from api.media import Format
from api.wire.records import encode_rows
from api.wire.v2 import decode_records, encode_offsets, record_texts
from api.wire.v3 import Row, sent_records
from log_tables.errors import InvalidRecord
from log_tables.record import RECORD_SCHEMA, with_offsets
from log_tables.rows import Rows, as_batch, count_of
from tests.kit.produce import records
from tests.kit.v3_bodies import decode_batch, decode_stream

REFUSALS = (MalformedBody, InvalidRecord, RequestTooLarge)
FORMATS = [Format.JSON, Format.BINARY, Format.TEXT]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
PIECES = [b"1", b"null", b'"a"', b"[1", b"2]", b"[", b"]", b"1,2", b",", b"", b'{"a":1}', b"{", b"}", b" 3 "]
PIECES += [
    b'"x',
    b'y"',
    b"\xff",
    b'"\xc3"',
    b'"\\ud800"',
    b'1}, {"value": 2',
    b"NaN",
    b"-",
    b"tru",
    b"\xef\xbb\xbf1",
]
raw_values = (
    st.sampled_from([None, *PIECES])
    | st.binary(max_size=6)
    | json_values.map(lambda value: json.dumps(value).encode())
)


def stored(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    return with_offsets([as_batch(Rows(values, 5_000, keys))], np.arange(len(values), dtype=np.int64))


def is_json(raw: bytes | None) -> bool:
    if raw is None:
        return True
    try:
        raw.decode()
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


@given(st.lists(raw_values, min_size=1, max_size=6))
@example([b"[1", b"2]"])
@example([b"1,2"])
@example([b'{"a":1},{"b":2}', b"1"])
@example([b"1,2", b"", b"3"])
@example([b'"\\ud800"'])
@example([b"1", b'{"a\x01":1}'])
def test_a_json_row_is_shown_as_stored_or_not_at_all(values: list[bytes | None]) -> None:
    good = next((place for place, value in enumerate(values) if not is_json(value)), len(values))
    if good == 0:
        with pytest.raises(NotJson, match="offset 0 of topic 't', partition 3"):
            encode_rows(stored(values), "t", 3, Format.JSON)
        return
    rows = encode_rows(stored(values), "t", 3, Format.JSON)
    assert len(rows) == good
    for place, (row, value) in enumerate(zip(rows, values, strict=False)):
        shown: dict[str, Any] = {
            "topic": "t",
            "key": None,
            "partition": 3,
            "offset": place,
            "timestamp": 5,
            "headers": [],
        }
        assert msgspec.json.decode(row) == shown | {"value": msgspec.json.decode(value or b"null")}


@given(st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=6))
def test_base64_shows_every_byte(values: list[bytes | None]) -> None:
    rows = [json.loads(row) for row in encode_rows(stored(values, values), "t", 0, Format.BINARY)]
    expected = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert [row["value"] for row in rows] == [row["key"] for row in rows] == expected


@given(st.lists(st.none() | st.text(max_size=6), min_size=1, max_size=6))
def test_text_goes_in_and_comes_out(texts: list[str | None]) -> None:
    sent = decode_records(records(*({"value": text} for text in texts)), Format.TEXT, 0)
    shown = encode_rows(stored(as_batch(sent.records).column("value").to_pylist()), "t", 0, Format.TEXT)
    assert [json.loads(row)["value"] for row in shown] == texts


@given(st.lists(st.tuples(json_values, json_values), min_size=1, max_size=4))
def test_json_goes_in_and_comes_out(pairs: list[tuple[Any, Any]]) -> None:
    sent = decode_records(records(*({"key": key, "value": value} for key, value in pairs)), Format.JSON, 0)
    batch = as_batch(sent.records)
    kept = stored(batch.column("value").to_pylist(), batch.column("key").to_pylist())
    assert kept.schema.equals(RECORD_SCHEMA)
    shown = [json.loads(row) for row in encode_rows(kept, "t", 0, Format.JSON)]
    assert [(row["key"], row["value"]) for row in shown] == pairs


bodies = st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode())
fields = st.dictionaries(
    st.sampled_from(["key", "value", "partition", "headers", "timestamp", "id", "partition_id"]),
    json_values
    | st.fixed_dictionaries({"type": st.sampled_from(["JSON", "STRING", "BINARY"]), "data": json_values}),
)
rows_like = st.lists(fields, max_size=3)


@given(bodies | rows_like.map(lambda rows: records(*rows)), st.sampled_from(FORMATS))
@example(b"[" * 100_000, Format.JSON)
@example(b'{"records":' + b"[" * 100_000 + b"]" * 100_000 + b"}", Format.TEXT)
@example(b'{"records":[{"value":' + b"1" * 5_000 + b"}]}", Format.TEXT)
@example(b'{"records":[{"timestamp":' + b"9" * 5_000 + b"}]}", Format.JSON)
def test_any_v2_body_is_rows_or_a_typed_error(body: bytes, form: Format) -> None:
    try:
        records = decode_records(body, form, 0).records
    except REFUSALS:
        return
    batch = as_batch(records)  # a commit does that, together with other requests: nothing may be wrong now
    batch.validate(full=True)
    assert batch.num_rows == count_of(records) > 0


@given(bodies | rows_like.map(lambda rows: b"".join(json.dumps(row).encode() for row in rows)))
@example(b"[" * 100_000)
@example(b"1" * 5_000)
@example(b'{"timestamp":' + b"9" * 5_000 + b"}")
@example(b'{"value":{"type":"BINARY","data":"\xc3\xa9"}}')
@example(b'{"value":{"type":"STRING","data":"\\ud800"}}')
def test_any_v3_stream_is_rows_or_a_typed_error(body: bytes) -> None:
    try:
        rows = decode_stream(body)
    except REFUSALS:
        return
    assert all(isinstance(row, Row) for row in rows)
    assert rows != []
    as_batch(sent_records(rows, 0).records).validate(full=True)


@given(bodies | rows_like.map(lambda rows: json.dumps({"entries": rows}).encode()))
@example(b'{"entries":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
def test_any_v3_batch_is_entries_or_a_typed_error(body: bytes) -> None:
    try:
        entries = decode_batch(body)
    except REFUSALS:
        return
    assert len({name for name, _ in entries}) == len(entries) > 0


@pytest.mark.parametrize("base", [0, 7, 2**62])
def test_a_run_is_answered_as_its_records_one_by_one(base: int) -> None:
    one_by_one = [record_texts((1, base + place, None, None), 1) for place in range(3)]
    assert record_texts((1, base, None, None), 3) == [text for [text] in one_by_one]
    assert record_texts((1, None, None, None), 2) == record_texts((1, None, None, None), 1) * 2
    placed = json.loads(encode_offsets(record_texts((1, base, None, None), 2)))["offsets"]
    assert placed[1] == {"partition": 1, "offset": base + 1, "error_code": None, "error": None}
    failed = json.loads(encode_offsets(record_texts((0, None, 50003, 'say "no"\n'), 1)))["offsets"]
    assert failed == [{"partition": 0, "offset": None, "error_code": 50003, "error": 'say "no"\n'}]
