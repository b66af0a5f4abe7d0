"""Hard values by every way in have the same bytes and the same time, or are refused by all.

Each way is its own code up to the records, without a process; Spark's sink alone has Spark and a gateway.
The tests state where a way differs.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.kafka.records.errors import InvalidBatch
from api.kafka.records.produced import decode_batch as decode_kafka
from api.media import Format, ValueFormat
from api.wire import v2, v3
from api.wire.arrow import decode_stream, sent_records
from api.wire.transaction import decode_transaction
from api.wire.values import JsonPointer, KeySource, decode_values
from ingest.buffer import Buffer
from lakelog.cli.rows import Fill, read
from lakelog.cli.source import Format as FileFormat
from lakelog.cli.source import Source
from lakelog.client.client import Client
from log_tables.errors import InvalidRequest
from log_tables.record import Record
from log_tables.rows import Records
from tests.kit import v3_bodies
from tests.kit.gateway import RunningGateway
from tests.kit.produce import stream
from tests.kit.record_batches import Sent, kafka_python_batch, logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_US = 1_700_000_000_000_123
Pair = tuple[bytes | None, bytes | None]

JSON_TEXTS = [
    *(b"0 -0 -0.0 0.10 1.50 1e2 1E+2 1e400 -1e400 5e-324 1e-400 12345678901234567890".split()),
    *(b"12345678901234567890.25 9007199254740993 01 +5 0x10 1. .5 1e NaN Infinity -inf".split()),
    *(b"true TRUE nul".split()),
    *(b'"" "x" "00501" "NA" "a\\/b" "\\u0041" "\\ud83d\\ude00" "\\ud800" "\\udc00\\ud800" "\\x"'.split(b" ")),
    b'"\xc3\xa9"',
    b'"\xf0\x9f\x98\x80"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"\xef\xbb\xbf"',
    b'"a\tb"',
    b'"\x00"',
    b'"\\u0000"',
    b'"a\\r\\nb"',
    b'"\xe2\x80\xa8"',
    b'"2013-01-31T10:00:00+05:30"',
    b'"2013-01-31T10:00:00.123456789Z"',
    b"{}",
    b'{"b":1, "a":2}',
    b'{"a":1,"a":2}',
    b'{"":[ ]}',
    b"[1, null]",
    b"[" * 400 + b"]" * 400,
    b"[" * 600 + b"]" * 600,
    b"1 2",
    b"'x'",
]

FIELDS = [
    *(b"00501 12345678901234567890 9007199254740993 0.10 0x10 +5 -0 NA NaN 1e400 inf true null".split()),
    *(b"2013-01-31 2013-01-31T10:00:00+05:30 1.50 {} [1,2".split()[:4]),
    b" 1",
    b"1 ",
    b'"a\nb"',
    b'"a\r\nb"',
    b'"a\rb"',
    b"a\rb",
    b'"a,b"',
    b'"a""b"',
    b'a"b',
    b'"a',
    b'"a"b',
    b"a\\b",
    b"\xc3\xa9",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbfx",
    b"\x00",
    b"",
    b'""',
    b"a,b",
]


def outcome(decode: Callable[[], list[Pair]]) -> list[Pair] | None:
    """The records, or None for a refusal."""
    try:
        return decode()
    except (InvalidRequest, InvalidBatch):
        return None


def pairs(records: Records) -> list[Pair]:
    return [(each.key, each.value) for each in logged(records)]


def by_file(path: Path, form: FileFormat, data: bytes, *of_json: str) -> list[Pair]:
    path.write_bytes(data)
    rows = read(Source(path, form, True), Fill("k", None, None, 2**30, of_json))
    return [(row.key, row.value) for row in rows]


def by_values(form: ValueFormat, body: bytes, *of_json: str) -> list[Pair]:
    with Buffer(2**28).room("t") as room:
        room.grow(len(body))
        keys = KeySource(JsonPointer("/k"))
        return pairs(decode_values(body, form, keys, of_json, NOW_US, room).records)


def by_transaction(body: bytes) -> list[Record]:
    with Buffer(2**28).room("t") as room:
        room.grow(len(body))
        return logged(decode_transaction(body, Format.JSON, room, NOW_US).records["t"].records)


@pytest.mark.parametrize("text", JSON_TEXTS, ids=lambda text: text[:20].hex())
def test_json_is_stored_as_it_stands_or_refused_by_every_way(text: bytes, tmp_path: Path) -> None:
    value = b'{"k": %b}' % text
    record = b'"key": %b, "value": %b' % (text, value)
    typed = b'"key": {"type": "JSON", "data": %b}, "value": {"type": "JSON", "data": %b}' % (text, value)
    ways: dict[str, Callable[[], list[Pair]]] = {
        "file": lambda: by_file(tmp_path / "f", FileFormat.NDJSON, b" %b\t\r\n" % value),
        "file with a mark": lambda: by_file(tmp_path / "f", FileFormat.NDJSON, b"\xef\xbb\xbf" + value),
        "lines": lambda: by_values(ValueFormat.NDJSON, b" %b\t\r\n" % value),
        "array": lambda: by_values(ValueFormat.JSON, b"[ %b ]" % value),
        "one value": lambda: by_values(ValueFormat.JSON, value),
        "v2": lambda: pairs(v2.decode_records(b'{"records": [{%b}]}' % record, Format.JSON, NOW_US).records),
        "transaction": lambda: [
            (each.key, each.value) for each in by_transaction(b'{"records": [{"topic": "t", %b}]}' % record)
        ],
        "v3": lambda: pairs(v3.sent_records(v3_bodies.decode_stream(b"{%b}" % typed), NOW_US).records),
        "v3 batch": lambda: pairs(v3.sent_records(batch_rows(typed), NOW_US).records),
    }
    found = {name: outcome(decode) for name, decode in ways.items()}
    assert found == dict.fromkeys(ways, [(text, value)] if found["lines"] else None)
    column = pa.array([value])
    arrow = sent_records(decode_stream(stream(pa.table({"value": column})), lambda _: None), NOW_US)
    assert pairs(arrow.records) == [(None, value)], "bytes are bytes"
    kafka = decode_kafka(kafka_python_batch([Sent(text, value, 0)]), 2**20, NOW_US)
    assert pairs(kafka.records) == [(text, value)]


def batch_rows(fields: bytes) -> list[v3.Row]:
    """The rows of a batch of v3 with one entry. Raises what is wrong with it."""
    rows = []
    for _, row in v3_bodies.decode_batch(b'{"entries": [{"id": "1", %b}]}' % fields):
        if not isinstance(row, v3.Row):
            raise row
        rows.append(row)
    return rows


def test_what_is_no_json_is_refused_and_what_is_json_is_not(tmp_path: Path) -> None:
    """The ways agree; here is on what."""
    found = {text: outcome(partial(by_values, ValueFormat.NDJSON, b'{"k":%b}' % text)) for text in JSON_TEXTS}
    refused = {text for text, records in found.items() if records is None}
    assert {b"NaN", b"Infinity", b"01", b"+5", b'"\xff"', b'"\xed\xa0\x80"', b'"a\tb"', b"1 2"} <= refused
    assert not {b"1e400", b"-0.0", b"0.10", b"12345678901234567890.25", b'{"a":1,"a":2}'} & refused
    assert outcome(partial(by_file, tmp_path / "f", FileFormat.NDJSON, b"null")) is None, "it has no field"
    rows = read(Source(tmp_path / "f", FileFormat.NDJSON, True), Fill(None, None, None, 9))
    assert [row.value for row in rows] == [None]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b""], ids=["lf", "crlf", "cr", "none"])
@pytest.mark.parametrize("of_json", [(), ("k",)], ids=["text", "json"])
def test_a_file_of_csv_has_the_values_of_the_body(
    end: bytes, of_json: tuple[str, ...], tmp_path: Path
) -> None:
    """But that a file may have no rows, and its key field has to be there."""
    for mark, head, field in product((b"", b"\xef\xbb\xbf"), (b"k,b", b"k,k", b"k,", b"k"), FIELDS):
        rest = b",1" if b"," in head else b""
        body = b"".join([mark, head, end or b"\n", field, rest, end])
        by_body = outcome(partial(by_values, ValueFormat.CSV, body, *of_json))
        in_file = outcome(partial(by_file, tmp_path / "f", FileFormat.CSV, body, *of_json))
        assert by_body == (in_file or None), body


def by_parquet(path: Path, column: pa.Array) -> list[Pair]:
    """A row of one column `k`."""
    pq.write_table(pa.table({"k": column}), path)
    return [(row.key, row.value) for row in read(Source(path, FileFormat.PARQUET, True), Fill("k", *FILL))]


FILL = (None, None, 2**30)


def test_a_row_of_parquet_has_the_text_of_its_field_or_is_refused(tmp_path: Path) -> None:
    """A text of Parquet has no quotes and no escapes, and may have what JSON and CSV have to escape."""
    inside = [text[1:-1] for text in JSON_TEXTS if text.startswith(b'"')]
    for field in [*FIELDS, *inside]:
        column = pa.array([field]).view(pa.string())
        found = outcome(partial(by_parquet, tmp_path / "f", column))
        if field.decode(errors="ignore").encode() != field:
            assert found is None, "it is not UTF-8"
            continue
        ((key, value),) = found or []
        assert value == b'{"k":%b}' % (key or b"")
        assert json.loads(key or b"") == field.decode()


def test_a_row_of_parquet_has_the_number_or_object_of_the_line_or_is_refused(tmp_path: Path) -> None:
    """But that a column has one type: a number without a fraction or in 64 bits is a double there."""
    for text in JSON_TEXTS:
        line = outcome(partial(by_file, tmp_path / "f", FileFormat.NDJSON, b'{"k":%b}' % text))
        if line is None or text.startswith((b'"', b"[[", b"{}")):
            continue  # texts are above; a Parquet file is not so deep, and has no struct without fields
        sent: Any = json.loads(text)
        if isinstance(sent, int) and abs(sent) >= 2**63:
            sent = float(sent)
        found = outcome(partial(by_parquet, tmp_path / "f", pa.array([sent])))
        if isinstance(sent, float) and math.isinf(sent):
            assert found is None, "it is more than a double holds"
            continue
        ((key, value),) = found or []
        assert value == b'{"k":%b}' % (key or b"")
        assert repr(json.loads(key or b"")) == repr(sent), "the sign of a zero, too"


TIMES_MS = [-1_001, -2, -1, 0, 1, 253_402_300_799_000, 253_402_300_799_001, -62_135_596_800_000, -(10**16)]


@pytest.mark.parametrize("time_ms", TIMES_MS)
def test_a_time_is_the_same_by_every_way_and_minus_one_is_the_append(time_ms: int, tmp_path: Path) -> None:
    stamp = b'"value": %b, "timestamp": %d'
    typed = stamp % (b'{"type": "JSON", "data": 1}', time_ms)
    plain = stamp % (b"1", time_ms)

    def arrow(times: pa.Array) -> list[Record]:
        body = stream(pa.table({"value": [b"1"], "timestamp": times}))
        return logged(sent_records(decode_stream(body, lambda _: None), NOW_US).records)

    def file() -> list[Record]:
        (tmp_path / "f").write_bytes(b'{"t": %d}' % time_ms)
        rows = read(Source(tmp_path / "f", FileFormat.NDJSON, True), Fill(None, None, "t", 2**20))
        return arrow(pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")))

    def parquet() -> list[Record]:
        pq.write_table(pa.table({"t": pa.array([time_ms], pa.timestamp("ms"))}), tmp_path / "p")
        rows = read(Source(tmp_path / "p", FileFormat.PARQUET, True), Fill(None, None, "t", 2**20))
        return arrow(pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")))

    ways: dict[str, Callable[[], list[Record]]] = {
        "v2": lambda: logged(v2.decode_records(b'{"records": [{%b}]}' % plain, Format.JSON, NOW_US).records),
        "transaction": lambda: by_transaction(b'{"records": [{"topic": "t", %b}]}' % plain),
        "v3": lambda: logged(v3.sent_records(v3_bodies.decode_stream(b"{%b}" % typed), NOW_US).records),
        "v3 batch": lambda: logged(v3.sent_records(batch_rows(typed), NOW_US).records),
        "integers of Arrow": lambda: arrow(pa.array([time_ms], pa.int64())),
        "times of Arrow": lambda: arrow(pa.array([time_ms], pa.timestamp("ms"))),
        "a file": file,
        "a file of Parquet": parquet,
        "Kafka": lambda: logged(
            decode_kafka(kafka_python_batch([Sent(None, b"1", time_ms)]), 2**20, NOW_US).records
        ),
        "many of Kafka": lambda: logged(
            decode_kafka(kafka_python_batch([Sent(None, b"1", time_ms)] * 50), 2**20, NOW_US).records
        )[:1],
    }
    found: dict[str, int | None] = {}
    for name, decode in ways.items():
        try:
            (record,) = decode()
            found[name] = record.timestamp_us
        except (InvalidRequest, InvalidBatch):
            found[name] = None
    inside = -62_135_596_800_000 <= time_ms <= 253_402_300_799_000
    time_us = NOW_US if time_ms == -1 else time_ms * 1_000
    assert found == dict.fromkeys(ways, time_us if inside else None)


@pytest.mark.spark
def test_spark_writes_each_value_and_time_as_the_row_has_it(
    spark: "SparkSession", gateway: RunningGateway
) -> None:
    """Bytes are bytes, as with Kafka's clients: nothing reads their JSON, and bad UTF-8 stays what it is."""
    from pyspark.sql import functions as F  # noqa: N812

    texts = [*JSON_TEXTS, *FIELDS, b"", None]
    times_ms = [each for each in TIMES_MS if -62_135_596_800_000 <= each <= 253_402_300_799_000]
    rows = [(number, text, times_ms[number % len(times_ms)]) for number, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "number int, bytes binary, ms long").coalesce(1).sort("number")
    written = frame.select(
        F.col("bytes").cast("string").alias("key"),
        F.col("bytes").alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.col("bytes").alias("value"))).alias("headers"),
        F.timestamp_micros(F.col("ms") * 1_000).alias("timestamp"),
        F.lit(0).alias("partition"),
    )
    topic = gateway.create_topic("hard-values-of-spark")
    options = {"path": gateway.data, "gateway": gateway.url, "topic": topic}
    written.write.format("lakelog").mode("append").options(**options).save()
    with Client(gateway.url) as client:
        found = list(client.read(topic, 0))
    assert [(each.key, each.value, *each.headers) for each in found] == [
        (text, text, ("h", text)) for text in texts
    ]
    for each, (*_, time_ms) in zip(found, rows, strict=True):
        if time_ms == -1:
            assert (each.timestamp_us or 0) > NOW_US, "it has the time of the append"
        else:
            assert each.timestamp_us == time_ms * 1_000
