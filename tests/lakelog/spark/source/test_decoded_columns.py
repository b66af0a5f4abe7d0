"""Values and keys as JSON in the rows of a query, whatever their format is."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog.spark.rows import ERROR, KEY_JSON, VALUE_JSON
from lakelog.spark.source.plan import BatchReader
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.layout import SCHEMA_FILES
from log_tables.limits import TYPED_AT_ONCE_BYTES
from log_tables.record import Record
from log_tables.schemas.framing import prefixed
from log_tables.store.store import open_store
from tests.kit.avro_values import written
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


def test_keys_and_values_are_decoded_in_slices_by_the_schemas_that_they_name(topics: Topics) -> None:
    topics.store.put(f"{SCHEMA_FILES}/1.avsc", json.dumps(FLIGHT).encode())
    topics.store.put(f"{SCHEMA_FILES}/2.avsc", b'"string"')
    topics.create("ids", 1, value_columns_format="avro", value_columns_schemas="files")
    count, long = 100, "x" * (TYPED_AT_ONCE_BYTES // 20)
    records = [
        Record(
            prefixed(1, written(FLIGHT, {"carrier": f"{n}{long}"})),
            prefixed(2, written("string", f"{long}{n}")),
        )
        for n in range(count)
    ]
    topics.put("ids", 0, *records, Record(prefixed(9, b"x"), prefixed(9, b"x")))
    reader = BatchReader(topics.options(subscribe="ids", columns=",".join(SHOWN)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.nbytes < 3 * TYPED_AT_ONCE_BYTES for batch in batches)
    *made, last = pa.Table.from_batches(batches).to_pylist()
    assert [json.loads(row[VALUE_JSON])["carrier"] for row in made] == [f"{n}{long}" for n in range(count)]
    assert [json.loads(row[KEY_JSON]) for row in made] == [f"{long}{n}" for n in range(count)]
    reason = "schema 9 is not known: there is no schemas/files/9.avsc, .proto or .json"
    assert [last[name] for name in SHOWN[1:]] == [None, "\0\0\0\0\x09x", reason]


def test_schemas_that_are_nowhere_fail_a_query_that_decodes(topics: Topics) -> None:
    topics.create("ids", 1, value_columns_format="avro", value_columns_schemas="topic:_schemas")
    topics.put("ids", 0, Record(b"x"))
    assert BatchReader(topics.options(subscribe="ids")).partitions()
    with pytest.raises(UnknownTopic, match="'_schemas'"):
        BatchReader(topics.options(subscribe="ids", columns="value_json")).partitions()
