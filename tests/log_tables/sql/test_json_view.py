"""`<topic>_json` decodes the rows and fields that a query names, and answers as if it had decoded all."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.sql.json_view import ScanRequest, json_table, named
from log_tables.sql.query import query
from log_tables.sql.topic_files import topic_files
from log_tables.store.store import open_store

VALUES = [
    b'{"n":1,"s":"a","say \\"x\\"":1,"nested":{"a":1},"list":[1,2],"mixed":1,"at":"2024-01-01T00:00:00Z"}',
    b'{"n":2.5,"s":null,"nested":{"b":"x"},"mixed":"x","topic":"mine","key_json":4,"late":3}',
    b"no JSON",
    None,
    b'{"n":3,"s":"b",\n"nested":{"a":2,\n"b":"y"},"list":[],"group":"g","desc":"d","limit":1}',
]


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    """A cluster with the topic `t` of two partitions, and a file for each value."""
    made = Cluster.open(open_store(store_root))
    for partition in create_topic(made, "t", 2).partitions():
        partition.claim("")
        for value in VALUES:
            partition.append([AppendRequest(input_batch([Record(value, key=b"k")], 0))])
    return made


def rows(cluster: Cluster, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(cluster, sql).to_pylist()]


def comparable(found: Iterable[tuple[object, ...]]) -> list[str]:
    """Rows in one order, and with numbers of one type: which type they have depends on the rows read."""
    return sorted(str([float(item) if isinstance(item, int) else item for item in row]) for row in found)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select n, s from {} where partition = 0 order by offset", None),
        ("select sum(n), max(s), count(list[1]) from {} where offset < 2", None),
        ("select nested['b'], list[2], sum(n) over (order by offset) from {} where partition = 1", None),
        ("select group, count(*) from {} group by group order by group desc limit 2", None),
        ('select desc, "limit" from {} where offset = 4 and partition = 0', [("d", 1)]),
        ("select topic_json, key_json from {} where offset = 1 and partition = 0", None),
        ("select offset, _raw from {} where _raw is not null and partition = 0", [(2, b"no JSON")]),
        ("select mixed from {} where partition = 0 order by offset", None),
        ("select late from {} where offset = 0 and partition = 1", [(None,)]),
        ("select sum(late) from {} where offset = 0", [(None,)]),
        ("select nested['b'] from {} where offset = 0 and partition = 0", [(None,)]),
        ("select count(*) from {}", [(10,)]),
        ("select count(*) from {} where n > 1", [(4,)]),
        ("select count(n) from (select * from {}) where offset > 0", [(4,)]),
        ("with x as (select * from {} where partition = 0) select max(s) from x where offset > 2", [("b",)]),
        ("select a.n from {0} a left join {0} b on a.offset = b.offset and b.n > 2 order by 1", None),
        ("select a.s, b.n from {0} a, {0} b where a.offset = 0 and b.offset = 1 and a.s = 'a'", None),
        ("select (select max(n) from {0} b where b.offset = a.offset) from {0} a where a.offset = 4", None),
        ("select n from {} where offset = 0 union all select n from {} where offset = 4", None),
        ("select count(*) from {0} natural join {0} x", None),
        (
            "select date_trunc('year', at), left(s, 1), sum(n) from {} where offset < 2 group by 1, 2",
            None,
        ),
        ("select distinct s from {} where key_text = 'k' and s is not null order by s", [("a",), ("b",)]),
        ("select arrow_typeof(n) from {} where arrow_typeof(n) = 'Float64' or offset = 99", None),
        ("describe {}", None),
        ('select "say ""x""" from {} where offset = 0 and partition = 1', [(1,)]),
    ],
)
def test_a_query_answers_as_over_all_rows_and_fields(
    cluster: Cluster, sql: str, found: list[tuple[object, ...]] | None
) -> None:
    got = rows(cluster, sql.format("t_json", "t_json"))
    if found is not None:
        assert got == found
    # The same of a copy of all rows and fields, in an order that the statement may leave open.
    whole = SessionContext(
        SessionConfig(
            {
                "datafusion.sql_parser.dialect": "PostgreSQL",
                "datafusion.sql_parser.enable_ident_normalization": "false",
            }
        )
    )
    table = json_table(topic_files(cluster, "t"), ScanRequest())
    whole.register_record_batches("whole", [table.to_batches()])
    expected = whole.sql(sql.format("whole", "whole")).to_arrow_table().to_pylist()
    assert comparable(got) == comparable(tuple(row.values()) for row in expected)


def test_only_named_fields_are_decoded(cluster: Cluster) -> None:
    files = topic_files(cluster, "t")
    assert json_table(files, ScanRequest(None, named({"s", "partition", "nothing"}))).schema.names == [
        "partition",
        "offset",
        "s",
    ]
    whole = json_table(files, ScanRequest())
    for name in ("n", "s", "nested", "list", "mixed", "at"):
        assert json_table(files, ScanRequest(None, named({name}))).column(name).equals(whole.column(name))


@pytest.mark.parametrize(
    "word", ["_raw", "offset_json", "key_json_json", "_raw_json", "key_text_json", "NATURAL", 'a"b', "a\\b"]
)
def test_names_that_depend_on_other_fields_take_all(word: str) -> None:
    assert named({"a", word}) is None
    assert named({"a", "b_json"}) == frozenset({"a", "b_json"})


def test_types_are_those_of_the_rows_that_are_read(cluster: Cluster) -> None:
    assert query(cluster, "select n from t_json where offset = 0").schema.field("n").type == pa.int64()
    assert query(cluster, "select n from t_json").schema.field("n").type == pa.float64()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nope from t_json", "no column of t_json is named 'nope'"),
        (
            "select count(*) from (select nope from t_json) where offset = 0",
            "no column of t_json is named 'nope'",
        ),
        ("select sum(s) from t_json", "sum"),
    ],
)
def test_what_no_row_has_is_named(cluster: Cluster, sql: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        query(cluster, sql)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select nestd from t_json", "no column of t_json is named 'nestd'; did you mean nested?"),
        ("select j.mixd from t_json j", "did you mean mixed?"),
        ("select lat, list from t_json", "did you mean late?"),
        ("select zzzzzz from t_json", "the newest records have topic, partition, offset"),
        ("select key_txt from t", "Did you mean 't.key_text'?"),
    ],
)
def test_a_misspelt_column_is_told_which_may_be_meant(cluster: Cluster, sql: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        query(cluster, sql)
    assert said in raised.value.message


def test_a_record_is_in_the_answer_as_soon_as_it_is_acknowledged(cluster: Cluster, store_root: Path) -> None:
    reader = Cluster.open(open_store(store_root))
    partition = cluster.topic("t").partition(1)
    for count in (3, 4, 5):
        partition.append([AppendRequest(input_batch([Record(b'{"new":1}')], 0))])
        assert rows(reader, "select count(new) from t_json") == [(count - 2,)]
        assert rows(reader, "select count(*) from t where value_text = '{\"new\":1}'") == [(count - 2,)]


@pytest.mark.parametrize(
    "value",
    [
        b'{"a":1,"a\\u0000b":2}',
        b'{"offset\\u0000":1,"a":2,"a\\u0000":3}',
        b'{"a":{"b":1,"b\\u0000":2,"\\u0000":3}}',
        b'{"a":[[{"b\\u0000":{"c":1,"c\\u0000":2}}]]}',
    ],
)
def test_a_null_character_in_the_name_of_a_field_takes_no_table_away(cluster: Cluster, value: bytes) -> None:
    partition = cluster.claim(create_topic(cluster, "hostile"), 0)
    partition.append([AppendRequest(input_batch([Record(value)], 0))])
    partition.append([AppendRequest(input_batch([Record(b'{"n":7}')], 0))])
    assert query(cluster, "select * from hostile_json").num_rows == 2
    assert rows(cluster, "select n from hostile_json where n is not null") == [(7,)]


def test_a_null_character_in_the_name_of_a_field_is_shown_by_its_number(cluster: Cluster) -> None:
    partition = cluster.claim(create_topic(cluster, "hostile"), 0)
    partition.append([AppendRequest(input_batch([Record(b'{"a":1,"a\\u0000b":2}')], 0))])
    assert rows(cluster, 'select a, "a\\u0000b" from hostile_json') == [(1, 2)]
