"""A query opens the files that can hold its rows, and no others: the calls of the store show which."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, CorruptSegment, StoreUnavailable
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.segments import rewrite
from log_tables.sql.query import query, query_stream
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
from tests.kit.tiers import move_topic, tiered_cluster

HOUR_US = 3_600_000_000
FILES, RECORDS = 4, 5


def fill(partition: Partition) -> None:
    """FILES files of RECORDS records, each a minute after the last, and each file an hour."""
    if not partition.leading:
        partition.claim("")
    for file in range(FILES):
        batch = [
            Record(
                b'{"n":%d,"s":"%d"}' % (file * RECORDS + index, file),
                key=b"k%d" % index,
                timestamp_us=file * HOUR_US + index * 60_000_000,
            )
            for index in range(RECORDS)
        ]
        partition.append([AppendRequest(input_batch(batch, 0))])


@pytest.fixture
def topic(store_root: Path) -> Path:
    """The root of a topic `t` of three partitions."""
    made = create_topic(Cluster.open(open_store(store_root)), "t", 3)
    for partition in made.partitions():
        fill(partition)
    return store_root


def read(root: Path, sql: str) -> tuple[list[tuple[object, ...]], int]:
    """(The rows of the answer, how many data files were opened for it)."""
    store = FaultyStore(open_store(root))
    found = [tuple(row.values()) for row in query(Cluster.open(store), sql).to_pylist()]
    gets = {call.path for call in store.calls if call.operation in ("get", "get_range")}
    return found, len([path for path in gets if path.startswith("topics/t/") and path.endswith(".parquet")])


ALL = 3 * FILES
QUERIES = [
    ("select value_text from {t} where partition = 1 and offset = 7", 1),
    ("select count(*) from {t} where offset = 7", 3),
    ("select count(*) from {t} where offset between 4 and 5 and partition in (0, 2)", 4),
    ("select count(*) from {t} where offset in (0, 19) and partition = 2", 2),
    ("select count(*) from {t} where not offset >= 5", 3),
    ("select count(*) from {t} where partition > 1", FILES),
    ("select count(*) from {t} where topic = 'u'", 0),
    ("select count(*) from {t} where topic = 't' and offset > 99", 0),
    ("select count(*) from {t} where timestamp < '1970-01-01T01:00:00Z'", 3),
    ("select count(*) from {t} where timestamp >= timestamp '1970-01-01T02:04:00Z' and partition < 1", 2),
    ("select max(offset) from {t} where timestamp < '1970-01-01' or partition = 0 and offset < 5", 1),
    ("with x as (select * from {t}) select count(*) from x where offset < 5 and partition = 0", 1),
    ("select count(*) from (select * from {t} union all select * from {t}) where offset = 1", 3),
    ("select count(*) from {t} a join {t} b using (offset) where a.partition = 0 and b.partition = 1", 8),
    ("select count(*) from {t} a left join {t} b on a.offset = b.offset and b.partition = 1", ALL),
    ("select count(*) from {t} where timestamp > now() - interval '1 day'", 0),
    ("select count(*) from {t} where timestamp < current_timestamp and offset = 7 and partition = 0", 1),
    ("select count(*) from {t}", ALL),
]


@pytest.mark.parametrize(("sql", "files"), QUERIES)
def test_only_files_that_can_hold_rows_are_opened(topic: Path, sql: str, files: int) -> None:
    plain, opened = read(topic, sql.format(t="t").replace("value_text", "value"))
    assert opened == files
    # The same of the fields of JSON, which are decoded of these files only.
    typed, opened = read(topic, sql.format(t="t_json").replace("value_text", "n"))
    assert opened == files
    if "value_text" not in sql:
        assert typed == plain


def test_the_other_files_may_be_damaged(topic: Path) -> None:
    wanted = Cluster.open(open_store(topic)).topic("t").partition(1).snapshot.segments[1]
    for file in topic.glob("topics/t/*/*.parquet"):
        if file.name != wanted.path:
            file.write_bytes(b"damaged")
    sql = "select n, s, partition, offset, key_text from t_json where partition = 1 and offset = 7"
    assert read(topic, sql) == ([(7, "1", 1, 7, "k2")], 1)
    assert read(topic, "select * from t_json where partition = 1 and offset = 7")[1] == 1
    with pytest.raises(CorruptSegment):
        read(topic, "select sum(n) from t_json")


@pytest.mark.parametrize("table", ["t", "t_json"])
def test_the_logs_of_other_partitions_may_be_damaged(topic: Path, table: str) -> None:
    for commit in topic.glob("topics/t/partition=0/_delta_log/*"):
        commit.write_bytes(b"damaged")
    wanted = "where partition = 1 and offset = 7"
    assert read(topic, f"select partition, offset from {table} {wanted}") == ([(1, 7)], 1)
    assert read(topic, f"select count(*) from {table} where partition > 0")[0] == [(2 * FILES * RECORDS,)]
    for asked in (f"select count(*) from {table}", f"select key from {table} where partition < 1"):
        with pytest.raises(CorruptLog, match="partition=0"):
            read(topic, asked)
    for commit in topic.glob("topics/t/partition=1/_delta_log/*"):
        commit.write_bytes(b"damaged")
    with pytest.raises(CorruptLog):
        read(topic, f"select * from {table} {wanted}")


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("key_text not in ('a', 'b', 'c', 'd', 'e')", 60),
        ("key in ('k0', 'k1')", 24),
        ("not key = 'k0' and offset < 5", 12),
        ("value_text like '%\"n\":3,%'", 3),
        ("headers is null or array_length(headers) > 0", 60),
        ("partition + offset = 3", 3),
        ("offset <> 3 and offset % 2 = 0 and partition not in (1, 5, 6, 7, 8)", 20),
        ("timestamp > now() - interval '1 day'", 0),
        ("extract(hour from timestamp) = 3", 15),
        ("(offset < 2 or key_text = 'k4') and partition = 0", 6),
        ("offset = null", 0),
        ("coalesce(partition, 9) = 2 and topic like 't%'", 20),
    ],
)
def test_a_condition_means_what_it_means_without_stats(topic: Path, condition: str, count: int) -> None:
    assert read(topic, f"select count(*) from t where {condition}")[0] == [(count,)]


def test_a_query_has_one_time_which_is_the_clocks(store_root: Path, clock: ManualClock) -> None:
    sql = "select now() as a, current_timestamp as b, current_date as c, today() as d, current_time as e"
    found = query(Cluster.open(open_store(store_root), clock), sql)
    assert [str(kind) for kind in found.schema.types] == [
        "timestamp[ns]",
        "timestamp[ns]",
        "date32[day]",
        "date32[day]",
        "time64[ns]",
    ]
    micros = found.column("a").cast("timestamp[us]").cast("int64").to_pylist()
    assert micros == [clock.now_us()]
    assert found.column("a").equals(found.column("b"))
    assert found.column("c").equals(found.column("a").cast("date32"))
    assert found.column("e").equals(found.column("a").cast("time64[ns]"))


def test_what_is_null_is_not_in_a_list(store_root: Path) -> None:
    cluster = Cluster.open(open_store(store_root))
    partition = create_topic(cluster, "t").partition(0)
    partition.claim("")
    records = [Record(None), Record(b"a", key=b"\xff"), Record(b"z", key=b"z")]
    partition.append([AppendRequest(input_batch(records, 0))])
    few, many = "('a', 'b')", "('a', 'b', 'c', 'd', 'e')"
    for column in ("value", "value_text", "key_text"):
        for some in (few, many):
            sql = f"select offset from t where {column} not in {some}"
            assert query(cluster, sql).to_pylist() == [{"offset": 2}], sql


def test_bytes_that_are_not_utf8_are_no_text(store_root: Path) -> None:
    cluster = Cluster.open(open_store(store_root))
    partition = create_topic(cluster, "t").partition(0)
    partition.claim("")
    records = [Record(b"\xff", key=b"k"), Record("ü".encode(), key=b"\xc3"), Record(None), Record(b"")]
    partition.append([AppendRequest(input_batch(records, 0))])
    found = query(cluster, "select value_text, key_text from t order by offset")
    assert [str(kind) for kind in found.schema.types] == ["string", "string"]
    assert found.column("value_text").to_pylist() == [None, "ü", None, ""]
    assert found.column("key_text").to_pylist() == ["k", None, None, None]


def test_a_file_that_a_merge_replaced_is_read_where_its_records_are_now(topic: Path) -> None:
    reader = query_stream(Cluster.open(open_store(topic)), "select offset from t where partition = 0")
    store = open_store(topic)
    log = Cluster.open(store).topic("t").partition(0)
    old = log.snapshot.segments
    merged = rewrite.merge(store, log.directory, old, "zstd", ManualClock())
    assert rewrite.commit_merge(log.table, old, merged)
    for segment in old:
        store.delete(f"{log.directory}/{segment.path}")
    assert sorted(reader.read_all().column("offset").to_pylist()) == list(range(FILES * RECORDS))


def test_records_that_are_deleted_meanwhile_are_named(topic: Path) -> None:
    reader = query_stream(Cluster.open(open_store(topic)), "select offset from t where partition = 0")
    store = open_store(topic)
    log = Cluster.open(store).topic("t").partition(0)
    old = log.snapshot.segments
    log.claim("")
    log.truncate(log.high_watermark)
    for segment in old:
        store.delete(f"{log.directory}/{segment.path}")
    with pytest.raises(StoreUnavailable, match="repeat the query"):
        reader.read_all()


def test_the_remote_root_is_asked_for_what_is_there(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    partition = create_topic(cluster, "t", 1, {"remote.storage.enable": "true"}).partition(0)
    fill(partition)
    move_topic(cluster, "t", [2])
    for file in (tmp_path / "away").rglob("*.parquet"):
        if file.name.startswith("0" * 20):
            file.write_bytes(b"damaged")
    for border in (5, 9, 10):
        sql = f"select count(*) from t_json where offset >= {border} and n >= {border}"
        assert query(cluster, sql).to_pylist() == [{"count(*)": FILES * RECORDS - border}]
    with pytest.raises(CorruptSegment):
        query(cluster, "select count(value) from t where offset < 5")
