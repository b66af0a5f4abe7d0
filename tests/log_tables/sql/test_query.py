"""SQL over topics gives what the log holds, and changes nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, CorruptSegment, InvalidArgument
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.sql.query import query, query_stream
from log_tables.store.store import open_store
from tests.kit.groups import commit
from tests.kit.support import S3Server

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    return Cluster.open(open_store(store_root))


def append(partition: Partition, *values: bytes | None, key: bytes | None = None) -> None:
    """One commit of the values."""
    if not partition.leading:
        partition.claim("")
    records = [Record(value, key=key, headers=[("h", b"\x00")]) for value in values]
    partition.append([AppendRequest(input_batch(records, NOW_US))])


def rows(cluster: Cluster, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(cluster, sql).to_pylist()]


def test_a_topic_is_a_view_over_all_its_partitions(cluster: Cluster) -> None:
    topic = create_topic(cluster, "orders", 3)
    append(topic.partition(0), b"a", b"b", key=b"k")
    append(topic.partition(0), b"c")
    append(topic.partition(2), b"d", None)
    found = query(cluster, "select * from orders order by partition, offset")
    assert found.schema.names == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "value_text",
        "key_text",
    ]
    assert found.schema.field("value").type == pa.binary()
    assert found.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert found.column("topic").to_pylist() == ["orders"] * 5
    assert found.select(["partition", "offset", "value"]).to_pylist() == [
        {"partition": 0, "offset": 0, "value": b"a"},
        {"partition": 0, "offset": 1, "value": b"b"},
        {"partition": 0, "offset": 2, "value": b"c"},
        {"partition": 2, "offset": 0, "value": b"d"},
        {"partition": 2, "offset": 1, "value": None},
    ]
    assert found.column("headers")[0].as_py() == [{"key": "h", "value": b"\x00"}]
    assert rows(cluster, "select count(*) from orders where partition = 1") == [(0,)]
    assert rows(cluster, "select cast(key as varchar) k, count(*) from orders group by 1 order by 1") == [
        ("k", 2),
        (None, 3),
    ]


def test_records_below_the_log_start_are_not_there(cluster: Cluster) -> None:
    partition = create_topic(cluster, "orders").partition(0)
    append(partition, *[b"x"] * 5)
    append(partition, *[b"x"] * 5)
    partition.truncate(7)
    assert rows(cluster, "select min(offset), max(offset), count(*) from orders") == [(7, 9, 3)]


def test_a_recreated_topic_shows_only_its_new_records(cluster: Cluster) -> None:
    append(create_topic(cluster, "orders").partition(0), b"old")
    delete_topic(cluster, "orders")
    append(create_topic(cluster, "orders").partition(0), b"new")
    assert rows(cluster, "select value from orders") == [(b"new",)]


def test_what_another_process_appends_is_seen_by_the_next_query(cluster: Cluster, store_root: Path) -> None:
    other = Cluster.open(open_store(store_root))
    partition = create_topic(other, "orders").partition(0)
    for count in (1, 2, 3):
        append(partition, b"x")
        assert rows(cluster, "select count(*) from orders") == [(count,)]


def test_topics_can_be_joined_and_internal_ones_read(cluster: Cluster) -> None:
    for name in ("a", "b"):
        append(create_topic(cluster, name).partition(0), b"1", b"2")
    assert rows(cluster, "select count(*) from a join b on a.value = b.value") == [(2,)]
    names = rows(cluster, "select cast(key as varchar) from __cluster_metadata order by 1")
    assert names == [("a",), ("b",)]


@pytest.mark.parametrize("name", ["Orders", "orders.v1", "orders-v1", "1", "select"])
def test_any_topic_name_can_be_quoted(cluster: Cluster, name: str) -> None:
    append(create_topic(cluster, name).partition(0), b'{"a":1}')
    assert rows(cluster, f'select topic, "{name}".offset from "{name}"') == [(name, 0)]
    assert rows(cluster, f'select a from "{name}_json"') == [(1,)]


def test_names_are_as_they_are_written_and_keywords_are_not(cluster: Cluster) -> None:
    append(create_topic(cluster, "Orders").partition(0), b'{"tailNum":1}')
    assert rows(cluster, "SELECT tailNum, offset FROM Orders JOIN Orders_json USING (offset)") == [(1, 0)]
    with pytest.raises(InvalidArgument, match="no topic 'orders'; did you mean Orders"):
        query(cluster, "select 1 from orders")


def test_columns_that_are_keywords_need_no_quotes(cluster: Cluster) -> None:
    append(create_topic(cluster, "t").partition(0), b"x")
    assert rows(cluster, "select partition, offset, key, t.offset o from t where offset < 9 offset 0") == [
        (0, 0, None, 0)
    ]


def test_a_large_answer_comes_in_batches(cluster: Cluster) -> None:
    partition = create_topic(cluster, "orders").partition(0)
    for _ in range(4):
        append(partition, *[b"x" * 100] * 5_000)
    reader = query_stream(cluster, "select * from orders")
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 20_000
    assert max(sizes) < 20_000


def test_json_values_have_typed_columns(cluster: Cluster) -> None:
    topic = create_topic(cluster, "flights", 2)
    append(topic.partition(0), b'{"carrier":"UA","delay":2}', b'{"carrier":"AA","delay":4.5}', key=b"k")
    append(topic.partition(1), b'{"carrier":"UA","delay":null,"legs":[1,2]}')
    assert rows(cluster, "select carrier, avg(delay) from flights_json group by carrier order by 1") == [
        ("AA", 4.5),
        ("UA", 2.0),
    ]
    assert rows(cluster, "select partition, offset, key, legs[2] from flights_json order by 1, 2") == [
        (0, 0, b"k", None),
        (0, 1, b"k", None),
        (1, 0, None, 2),
    ]
    both = "select count(*) from flights f join flights_json j using (partition, offset)"
    assert rows(cluster, both) == [(3,)]


def test_values_that_are_not_json_objects_can_be_counted(cluster: Cluster) -> None:
    append(create_topic(cluster, "t").partition(0), b'{"a":1}', b"oops", None, b"[1]", b'{"a":2}')
    assert rows(cluster, "select offset, a, _raw from t_json order by offset") == [
        (0, 1, None),
        (1, None, b"oops"),
        (2, None, None),
        (3, None, b"[1]"),
        (4, 2, None),
    ]


def test_fields_named_like_columns_get_a_suffix(cluster: Cluster) -> None:
    value = b'{"offset":7,"key":"k","_raw":1,"key_json":2,"x y":3,"Case":4,"case":5}'
    append(create_topic(cluster, "t").partition(0), value)
    found = query(cluster, "select * from t_json").to_pylist()
    assert found[0] | {"timestamp": None} == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": None,
        "key": None,
        "key_text": None,
        "offset_json": 7,
        "key_json": "k",
        "_raw": 1,
        "key_json_json": 2,
        "x y": 3,
        "Case": 4,
        "case": 5,
        "_raw_json": None,
    }


def test_an_empty_topic_has_json_columns_too(cluster: Cluster) -> None:
    create_topic(cluster, "t", 2)
    assert rows(cluster, "select count(*), count(_raw) from t_json") == [(0, 0)]


def test_a_topic_that_has_the_name_of_json_columns_comes_first(cluster: Cluster) -> None:
    append(create_topic(cluster, "t").partition(0), b'{"a":1}')
    append(create_topic(cluster, "t_json").partition(0), b"mine")
    assert rows(cluster, "select value from t_json") == [(b"mine",)]


def test_where_consumer_groups_are_can_be_asked(cluster: Cluster) -> None:
    append(create_topic(cluster, "orders", 2).partition(0), *[b"x"] * 5)
    columns = query(cluster, "select * from consumer_offsets").schema.names
    assert columns[:5] == ["group", "topic", "partition", "offset", "metadata"]
    assert rows(cluster, "select * from consumer_lag") == []
    commit(cluster, "audit", "orders", 0, 1)
    commit(cluster, "it's", "orders", 0, 5)
    commit(cluster, "audit", "orders", 0, 2)
    assert rows(cluster, "select group, offset, lag from consumer_lag order by group") == [
        ("audit", 2, 3),
        ("it's", 5, 0),
    ]
    joined = (
        "select l.lag, o.value from consumer_lag l join consumer_offsets c using (group, topic, partition) "
        "join orders o on o.offset = c.offset"
    )
    assert rows(cluster, joined) == [(3, b"x")]
    assert [row[0] for row in rows(cluster, "describe consumer_lag")][-3:] == [
        "lag",
        "lag_seconds",
        "lag_bytes",
    ]


def test_the_log_of_groups_is_a_topic_too(cluster: Cluster) -> None:
    append(create_topic(cluster, "orders").partition(0), b"x")
    commit(cluster, "g", "orders", 0, 1)
    assert rows(cluster, "select cast(key as varchar) from __consumer_offsets") == [
        ('{"kind":"offset","group":"g","topic":"orders","partition":0}',)
    ]
    assert rows(cluster, "select offset_json from __consumer_offsets_json") == [(1,)]


def test_a_topic_of_the_name_of_a_table_comes_first(cluster: Cluster) -> None:
    append(create_topic(cluster, "consumer_lag").partition(0), b"mine")
    assert rows(cluster, "select value from consumer_lag") == [(b"mine",)]
    assert rows(cluster, "select count(*) from consumer_offsets") == [(0,)]


def test_a_query_leaves_no_files(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    append(create_topic(cluster, "t").partition(0), b'{"a":1}')
    reader = query_stream(cluster, "select a from t_json")
    assert os.listdir(scratch) == []
    assert reader.read_all().to_pylist() == [{"a": 1}]
    with pytest.raises(InvalidArgument):
        query(cluster, "select nothing from t_json")
    assert os.listdir(scratch) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("selec 1", "found: selec at Line: 1, Column: 1"),
        ("select 1\nfrom\n\n,", "Line: 4"),
        ("", "No SQL statements"),
        ("select nope from orders", "No field named nope"),
        ("select 1/0", "Divide by zero"),
        ("select cast(cast(value as varchar) as int) from orders", "Cannot cast string 'x'"),
        ("select 1; select 2", "single SQL statement"),
        (
            "select * from nowhere",
            "there is no topic 'nowhere'; there are Big.Topic, orders, __cluster_metadata",
        ),
        ("select * from nowhere", "and the tables consumer_offsets and consumer_lag"),
        ("select * from Big.Topic", "double quotes around"),
        ("select * from orders_jsons", "no topic 'orders_jsons'; did you mean orders_json?"),
        ("select * from consumer_lags", "did you mean consumer_lag?"),
    ],
)
def test_sql_that_cannot_be_answered_says_why(cluster: Cluster, sql: str, said: str) -> None:
    append(create_topic(cluster, "orders").partition(0), b"x")
    create_topic(cluster, "Big.Topic")
    with pytest.raises(InvalidArgument) as raised:
        query(cluster, sql)
    assert said in raised.value.message


def test_a_query_can_be_explained_and_a_view_described(cluster: Cluster) -> None:
    create_topic(cluster, "orders")
    columns = [row[0] for row in rows(cluster, "describe orders;")]
    assert columns[:3] == ["topic", "partition", "offset"]
    assert rows(cluster, "explain select count(*) from orders")[0][0] == "logical_plan"
    assert rows(cluster, "explain analyze verbose select 1")
    assert rows(cluster, "with x as (values (1), (2)) select count(*) from x;") == [(2,)]
    plan = str(rows(cluster, "explain select count(*) from orders where offset < 5 and value_text = 'x'"))
    assert "offset < 5" in plan


def test_the_tables_can_be_listed(cluster: Cluster) -> None:
    create_topic(cluster, "orders")
    create_topic(cluster, "orders_json")
    assert rows(cluster, " SHOW\ntables ; -- all") == [
        ("__cluster_metadata", "topic"),
        ("__cluster_metadata_json", "fields of JSON"),
        ("audit", "table"),
        ("audit_writes", "table"),
        ("consumer_lag", "table"),
        ("consumer_offsets", "table"),
        ("maintenance_runs", "table"),
        ("mirror_gaps", "table"),
        ("orders", "topic"),
        ("orders_json", "topic"),
        ("orders_json_json", "fields of JSON"),
    ]


def test_a_table_that_cannot_be_read_is_typed_and_names_no_path(cluster: Cluster, store_root: Path) -> None:
    append(create_topic(cluster, "orders").partition(0), b"x")
    (segment,) = store_root.glob("topics/orders/partition=0/*.parquet")
    segment.unlink()
    reader = Cluster.open(open_store(store_root))
    with pytest.raises(CorruptSegment, match="is missing") as raised:
        query(reader, "select value from orders")
    assert segment.name in raised.value.message
    assert str(store_root).lstrip("/") not in raised.value.message
    for version in store_root.glob("topics/orders/partition=0/_delta_log/*"):
        version.write_bytes(b"not JSON")
    with pytest.raises(CorruptLog) as of_the_log:
        query(Cluster.open(open_store(store_root)), "select value from orders")
    assert str(store_root).lstrip("/") not in of_the_log.value.message


def test_tables_in_memory_can_be_asked() -> None:
    cluster = Cluster.open(open_store("memory://"))
    append(create_topic(cluster, "t").partition(0), b'{"a":1}')
    assert rows(cluster, "select a, key_text from t_json") == [(1, None)]


@pytest.mark.parametrize("place", ["größe & 100% #1", "a b~2/it's"])
def test_any_directory_can_be_asked(tmp_path: Path, place: str) -> None:
    cluster = Cluster.open(open_store(tmp_path / place))
    create_topic(cluster, "t")
    delete_topic(cluster, "t")
    append(create_topic(cluster, "t").partition(0), b'{"a":1}')
    assert rows(cluster, "select offset, a from t_json") == [(0, 1)]


def test_a_bucket_can_be_asked(s3: S3Server) -> None:
    cluster = Cluster.open(open_store(f"{s3.bucket('query')}/some/prefix", s3.options))
    create_topic(cluster, "t")
    delete_topic(cluster, "t")
    append(create_topic(cluster, "t").partition(0), b'{"a":1}', b'{"a":2}')
    assert rows(cluster, "select sum(a) from t_json") == [(3,)]


def test_errors_while_reading_end_the_stream(cluster: Cluster) -> None:
    append(create_topic(cluster, "orders").partition(0), b"1", b"x")
    ask: list[Callable[[], object]] = [
        lambda: query_stream(cluster, "select cast(cast(value as varchar) as int) from orders").read_all(),
        lambda: [*query_stream(cluster, "select cast(cast(value as varchar) as int) from orders")],
    ]
    for read in ask:
        with pytest.raises(InvalidArgument, match="Cannot cast"):
            read()
