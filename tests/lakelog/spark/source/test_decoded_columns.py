"""Values and keys as JSON in the rows of a query, whatever their format is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog.spark.decoding import ValueDecoder
from lakelog.spark.rows import ERROR, KEY_JSON, VALUE_JSON
from lakelog.spark.source.plan import BatchReader
from log_tables.errors import InvalidArgument, StoreUnavailable
from log_tables.limits import TYPED_AT_ONCE_BYTES
from log_tables.record import RECORD_SCHEMA, Record, headers_array
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.framing import prefixed
from log_tables.schemas.schema import KnownSchemas, SchemaLocation, Schemas
from log_tables.store.store import open_store
from tests.kit.avro_values import schema_of, written
from tests.kit.spark import Topics, rows

FLIGHT = {"type": "record", "name": "flight", "fields": [{"name": "carrier", "type": "string"}]}
ONE_SCHEMA = {"value_columns_format": "avro", "value_columns_schema": json.dumps(FLIGHT)}
UNITED, CUT = written(FLIGHT, {"carrier": "UA"}), b"\x08UA"
SHOWN = ("offset", VALUE_JSON, KEY_JSON, ERROR)


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """Three records whose values have one schema, in a file; and a topic of JSON."""
    made = Topics(open_store(store_root))
    made.create("t", 1, **ONE_SCHEMA)
    made.put("t", 0, Record(UNITED, key=b"k"), Record(CUT), Record(None, key=b"\xff"))
    made.create("plain")
    made.put("plain", 0, Record(b'{"n":1}', key=b"k"), Record(b"\xff"))
    return made


def found(topics: Topics, **options: object) -> list[tuple[object, ...]]:
    reader = BatchReader(topics.options(columns=",".join(SHOWN), **options))
    return [tuple(row[name] for name in SHOWN) for row in rows(reader, reader.partitions())]


def test_a_value_is_json_and_one_that_cannot_be_decoded_says_why(topics: Topics) -> None:
    assert found(topics) == [
        (0, '{"carrier":"UA"}', "k", None),
        (1, None, None, "/carrier has a length of 4, and 2 bytes are left"),
        (2, None, None, None),
    ]


def test_json_is_its_own_text(topics: Topics) -> None:
    assert found(topics, subscribe="plain") == [(0, '{"n":1}', "k", None), (1, None, None, None)]


def test_a_stream_has_them_too(topics: Topics) -> None:
    query = topics.query(columns="value_json,value")
    assert query.plan()
    assert rows(query.reader, query.planned)[0] == {"value_json": '{"carrier":"UA"}', "value": UNITED}


def test_they_are_named_exactly(topics: Topics) -> None:
    with pytest.raises(InvalidArgument, match=r"there are key, .*, value_json, key_json, _error$"):
        BatchReader(topics.options(columns="Value_json"))


@dataclass(frozen=True)
class _Registry(SchemaLocation):
    """Schemas that a task opens."""

    answers: bool = True

    def open(self) -> Schemas:
        if not self.answers:
            raise StoreUnavailable("the store is away; try again")
        return KnownSchemas({1: schema_of(FLIGHT), 2: schema_of("string")})


def decoded(decoder: ValueDecoder, *records: Record) -> list[dict[str, Any]]:
    count = len(records)
    columns = [
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        pa.array([each.key for each in records], pa.binary()),
        pa.array([each.value for each in records], pa.binary()),
        headers_array([each.headers for each in records]),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    made = [*decoder.beside(iter([batch]), frozenset(SHOWN))]
    assert all(each.nbytes < 5 * TYPED_AT_ONCE_BYTES for each in made)
    rows: list[dict[str, Any]] = pa.Table.from_batches(made).select(SHOWN).to_pylist()
    return rows


def test_keys_and_values_are_decoded_in_slices_by_the_schemas_that_they_name() -> None:
    count, long = 100, "x" * (TYPED_AT_ONCE_BYTES // 20)
    records = [
        Record(
            prefixed(1, written(FLIGHT, {"carrier": f"{n}{long}"})),
            prefixed(2, written("string", f"{long}{n}")),
        )
        for n in range(count)
    ]
    made = decoded(ValueDecoder(Encoding(Format.AVRO), _Registry()), *records)
    assert [json.loads(row[VALUE_JSON])["carrier"] for row in made] == [f"{n}{long}" for n in range(count)]
    assert [json.loads(row[KEY_JSON]) for row in made] == [f"{long}{n}" for n in range(count)]
    assert {row[ERROR] for row in made} == {None}


def test_a_store_that_is_away_fails_the_task_and_no_value() -> None:
    with pytest.raises(StoreUnavailable):
        decoded(ValueDecoder(Encoding(Format.AVRO), _Registry(answers=False)), Record(b"x"))
