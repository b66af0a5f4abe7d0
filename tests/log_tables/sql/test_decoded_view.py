"""`<topic>_json` of values that are not JSON: each is decoded by its schema, and answers as JSON would."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.layout import SCHEMA_FILES
from log_tables.limits import TYPED_AT_ONCE
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.schemas.framing import KEY_HEADER, VALUE_HEADER, prefixed
from log_tables.schemas.schema import guid
from log_tables.sql.json_view import ScanRequest, json_table
from log_tables.sql.query import query, query_stream
from log_tables.sql.topic_files import TopicFiles, topic_files
from log_tables.store.store import open_store
from tests.kit.avro_values import written

FLIGHT = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "long"]},
        {
            "name": "route",
            "type": {"type": "record", "name": "route", "fields": [{"name": "to", "type": "string"}]},
        },
    ],
}
LATER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "seats", "type": "int", "default": 0}]}
FILES = {
    "1.avsc": FLIGHT,
    "2.avsc": LATER,
    f"{guid(bytes(16))}.avsc": FLIGHT,
    "4.avsc": "string",
    "5.json": {},
}
GUID_ZERO = b"\x01" + bytes(16)
AVRO = {"value.columns.format": "avro", "value.columns.schemas": "files"}


def flight(carrier: str, delay: int | None, to: str = "IAH", **more: Any) -> dict[str, Any]:
    return {"carrier": carrier, "delay": delay, "route": {"to": to}, **more}


def cluster_of(batches: Sequence[Sequence[Record]], **configs: str) -> Cluster:
    """A cluster with the schemas FILES and the topic `t`, with a file for each batch."""
    made = Cluster.open(open_store("memory://"))
    for name, schema in FILES.items():
        made.store.put(f"{SCHEMA_FILES}/{name}", json.dumps(schema).encode())
    partition = create_topic(made, "t", configs=configs).partition(0)
    partition.claim("")
    for records in batches:
        partition.append([AppendRequest(input_batch(records, 0))])
    return made


def files_of(*records: Record, **configs: str) -> TopicFiles:
    """The files of the topic with a file for each record."""
    return topic_files(cluster_of([[each] for each in records], **(configs or AVRO)), "t")


def rows(files: TopicFiles, *names: str) -> list[tuple[object, ...]]:
    table = json_table(files, ScanRequest(None, frozenset(names)))
    return [*zip(*(table[name].to_pylist() for name in names), strict=True)]


def test_values_of_several_schemas_are_one_table() -> None:
    files = files_of(
        Record(prefixed(1, written(FLIGHT, flight("UA", 2)))),
        Record(prefixed(2, written(LATER, flight("AA", None, seats=9)))),
        Record(None),
    )
    assert rows(files, "offset", "carrier", "delay", "seats") == [
        (0, "UA", 2, None),
        (1, "AA", None, 9),
        (2, None, None, None),
    ]


def test_a_value_and_a_key_are_decoded_by_their_headers() -> None:
    headers = [(VALUE_HEADER, GUID_ZERO), (KEY_HEADER, GUID_ZERO)]
    made = written(FLIGHT, flight("UA", 2))
    files = files_of(Record(made, key=made, headers=headers))
    assert rows(files, "carrier") == [("UA",)]
    assert rows(files, "key_text") == [('{"carrier":"UA","delay":2,"route":{"to":"IAH"}}',)]


def test_a_key_without_a_known_schema_is_text_as_it_is() -> None:
    keys = [b"plain", prefixed(4, written("string", "k")), prefixed(9, b"x"), b"\xff", None]
    files = files_of(*(Record(None, key=key) for key in keys))
    assert rows(files, "key_text") == [("plain",), ('"k"',), ("\0\0\0\0\x09x",), (None,), (None,)]


def test_what_cannot_be_decoded_is_there_as_it_is_and_says_why() -> None:
    good, cut = (
        prefixed(1, written(FLIGHT, flight("UA", 2))),
        prefixed(1, written(FLIGHT, flight("UA", 2)))[:-2],
    )
    unknown, bare = prefixed(7, b"\x02"), b'{"carrier":"UA"}'
    table = json_table(files_of(*map(Record, (good, cut, unknown, bare))), ScanRequest())
    assert table["_raw"].to_pylist() == [None, cut, unknown, bare]
    assert table["_error"].to_pylist() == [
        None,
        "schema 1: /route/to has a length of 3, and 1 bytes are left",
        "schema 7 is not known: there is no schemas/files/7.avsc, .proto or .json",
        "the value names no schema",
    ]
    assert table["carrier"].to_pylist() == ["UA", None, None, None]


def test_json_that_names_a_schema_and_json_that_names_none_are_both_read() -> None:
    values = prefixed(5, b'{"n":1}'), b'{"n":2}', prefixed(1, written(FLIGHT, flight("UA", 2))), b"oops"
    files = files_of(*map(Record, values), **{**AVRO, "value.columns.format": "auto"})
    assert rows(files, "n", "carrier") == [(1, None), (2, None), (None, "UA"), (None, None)]
    assert json_table(files, ScanRequest())["_raw"].to_pylist() == [None, None, None, b"oops"]


def test_a_file_of_many_values_is_decoded_in_parts_that_stay_in_order() -> None:
    count = 2 * TYPED_AT_ONCE + 3
    values = [prefixed(1, written(FLIGHT, flight(f"c{number}", number))) for number in range(count)]
    files = topic_files(cluster_of([[Record(each) for each in values]], **AVRO), "t")
    assert rows(files, "offset", "delay") == [(number, number) for number in range(count)]


@pytest.fixture(scope="module")
def one_schema() -> Cluster:
    """Three values of one schema, which they do not name, and one that is cut."""
    values = [
        written(FLIGHT, flight("UA", 2)),
        written(FLIGHT, flight("AA", 7, "JFK")),
        b"\x04U",
        written(FLIGHT, flight("UA", None)),
    ]
    return cluster_of(
        [[Record(each)] for each in values],
        **{"value.columns.format": "avro", "value.columns.schema": json.dumps(FLIGHT)},
    )


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "select carrier, sum(delay) from t_json where carrier is not null group by 1 order by 1",
            [("AA", 7), ("UA", 2)],
        ),
        ("select route['to'] from t_json where delay > 2", [("JFK",)]),
        (
            "select offset, _error from t_json where _error is not null",
            [(2, "/carrier has a length of 2, and 1 bytes are left")],
        ),
        ("select _raw from t_json where offset = 2", [(b"\x04U",)]),
        ("select carrier from t_json natural join (select 7 as delay) x", [("AA",)]),
        ("select max(missing) from t_json where offset < 2", None),
    ],
)
def test_sql_asks_for_fields_as_of_json(
    one_schema: Cluster, sql: str, found: list[tuple[object, ...]] | None
) -> None:
    if found is None:
        with pytest.raises(
            InvalidArgument,
            match=r"no column of t_json is named 'missing'; the newest records have .*carrier",
        ):
            query(one_schema, sql)
        return
    assert [tuple(row.values()) for row in query(one_schema, sql).to_pylist()] == found


def test_a_filter_over_offsets_leaves_out_files(one_schema: Cluster) -> None:
    scans: list[tuple[str, int, int]] = []
    sql = "select carrier from t_json where offset = 1"
    found = query_stream(one_schema, sql, lambda *scan: scans.append(scan)).read_all()
    assert found.to_pydict() == {"carrier": ["AA"]}
    assert {*scans} == {("t", 1, 4)}


def test_the_view_of_a_topic_of_json_has_no_column_of_errors() -> None:
    cluster = cluster_of([[Record(b'{"n":1}')], [Record(b"oops")]])
    assert "_error" not in query(cluster, "select * from t_json").schema.names
