"""A topic of many partitions is one scan and a tail: a query shows all that was acknowledged before it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from lakelog.spark.sql.topic_scan import PARTITIONS_MIN, usable_table
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.columns.declaration import parse
from log_tables.layout import log_directory
from log_tables.segments import rewrite
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from log_tables.topic_table.topic_table import refold
from tests.kit.gateway import RunningGateway
from tests.kit.partitions import thin_out
from tests.kit.tiers import move_topic
from tests.kit.views import NOW_US, append, register, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNT = PARTITIONS_MIN
EVERY = "select partition, offset, value from t order by 1, 2"


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """A topic `t` with two records in each partition, which are folded."""
    made = create_topic(cluster, "t", COUNT)
    for partition in made.partitions():
        append(partition, b"a", b"b", key=b"k")
    fold(made)
    return made


def local(cluster: Cluster, sql: str = EVERY) -> list[tuple[object, ...]]:
    """The rows that `lakelog sql` answers."""
    return [tuple(row.values()) for row in query(cluster, sql).to_pylist()]


def has_tail(spark: "SparkSession", view: str = "t") -> bool:
    """Whether the view scans the table over the topic and reads its tail in Python, and not each partition's
    table.
    """
    return "MapInArrow" in spark.table(view)._jdf.queryExecution().optimizedPlan().toString()


def check(spark: "SparkSession", cluster: Cluster) -> None:
    assert has_tail(spark)
    assert rows(spark, EVERY) == local(cluster)


def test_acknowledged_records_are_there_at_once_whether_folded_or_not(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    register(spark, cluster, names="t", json="a long")
    kept = spark.table("t")
    for turn in range(2):
        check(spark, cluster)
        append(topic.partition(turn), b'{"a":1}', None)
        append(topic.partition(COUNT - 1), b'{"a":2}')
        check(spark, cluster)
        assert kept.count() == 2 * COUNT + 3 * (turn + 1)
        assert rows(spark, "select sum(a) from t_json") == [(3 * (turn + 1),)]
        if turn:
            fold(topic)
    columns = "topic, partition, offset, unix_micros(timestamp), key, value, value_text, key_text"
    append(topic.partition(0), b"\xff", key=b"k")
    for number, offset, value, text in ((1, 1, b"b", "b"), (0, 4, b"\xff", None)):
        where = f"partition = {number} and offset = {offset}"
        ((*cells, headers),) = rows(spark, f"select {columns}, headers from t where {where}")
        assert cells == ["t", number, offset, NOW_US, b"k", value, text, "k"]
        assert [(header.key, bytes(header.value)) for header in headers] == [("h", b"\x00")]  # type: ignore[attr-defined]


def test_a_fold_after_a_query_was_planned_takes_nothing_from_it(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    """The tail begins where the planned version of the table ends, not where the newest one does."""
    register(spark, cluster, names="t")
    append(topic.partition(0), b"c")
    fold(topic)
    planned = spark.sql(EVERY)
    planned._jdf.queryExecution().executedPlan()
    for number in range(COUNT):
        append(topic.partition(number), b"later")
    fold(topic)
    append(topic.partition(1), b"latest")
    assert [(row.partition, row.offset, bytes(row.value)) for row in planned.collect()] == local(cluster)


def test_a_record_is_shown_as_soon_as_a_gateway_has_acknowledged_it(
    spark: "SparkSession", gateway: RunningGateway
) -> None:
    from lakelog.spark.sql.views import topics

    name = gateway.create_topic("shown-at-once", COUNT)
    topics(spark, gateway.data, names=name)
    assert has_tail(spark, f"`{name}`")
    for turn in range(3):
        assert gateway.produce(name, turn, partition=turn % COUNT, acks="all").status_code == 200
        assert rows(spark, f"select count(*), max(cast(value_text as int)) from `{name}`") == [
            (turn + 1, turn)
        ]


def test_deletions_are_seen_at_once(spark: "SparkSession", cluster: Cluster, topic: Topic) -> None:
    """Truncation drops whole segments and cuts one, first among folded records, then in the tail."""
    register(spark, cluster, names="t")
    topic.partition(0).truncate(1)
    check(spark, cluster)
    topic.partition(0).truncate(2)
    append(topic.partition(1), b"c", b"d", b"e")
    topic.partition(1).truncate(3)
    check(spark, cluster)
    fold(topic)
    check(spark, cluster)
    register(spark, cluster, names="t")
    check(spark, cluster)
    for partition in topic.partitions():
        partition.truncate(partition.high_watermark)
    assert rows(spark, EVERY) == []


def test_merges_and_compactions_by_key_are_followed(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    register(spark, cluster, names="t")
    for value in (b"c", b"d"):
        append(topic.partition(0), value, key=b"k")
    fold(topic)
    for step in ("merge", "compaction"):
        partition = topic.partition(0)
        if step == "merge":
            inputs = partition.snapshot.segments[:2]
            made = rewrite.merge(cluster.store, partition.directory, inputs, "zstd", SystemClock())
            assert rewrite.commit_merge(partition.table, inputs, made)
            check(spark, cluster)
        else:
            thin_out(partition, partition.snapshot.segments, keep=lambda offset: offset == 3)
        append(partition, b"tail")
        fold(topic)
        check(spark, cluster)


def test_partitions_that_were_added_are_shown(spark: "SparkSession", cluster: Cluster, topic: Topic) -> None:
    register(spark, cluster, names="t")
    grown = add_partitions(cluster, "t", COUNT + 2)
    append(grown.partition(COUNT), b"x")
    check(spark, cluster)
    fold(grown)
    append(grown.partition(COUNT), b"y")
    append(grown.partition(COUNT + 1), b"z")
    check(spark, cluster)


def test_columns_that_are_declared_leave_a_view_as_it_is(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    """Until it is registered again."""
    register(spark, cluster, names="t")
    check(spark, cluster)
    alter_topic(cluster, "t", {"value.columns": "a bigint"})
    append(topic.partition(0), b'{"a":1}')
    check(spark, cluster)
    fold(topic)
    append(topic.partition(1), b'{"a":2}')
    check(spark, cluster)
    register(spark, cluster, names="t")
    check(spark, cluster)


def test_a_view_has_declared_columns_from_the_table_and_from_the_tail(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    alter_topic(
        cluster, "t", {"value.columns": "a bigint, `b-c` array<string> FROM '/b', p decimal(38,3), r binary"}
    )
    append(topic.partition(0), b'{"a":1,"b":["x",null],"p":-%d.125,"r":"AP8="}' % 10**34)
    fold(topic)
    append(topic.partition(1), b'{"a":2,"p":"0.5"}', b'{"a":"x"}')
    register(spark, cluster, names="t")
    check(spark, cluster)
    sql = "select partition, offset, a, value_error, p, r{} from t order by 1, 2"
    assert rows(spark, "select a from t where p = 0.5 or r = X'00FF' order by a") == [(1,), (2,)]
    assert rows(spark, sql.format("")) == local(cluster, sql.format(""))
    assert rows(spark, "select `b-c` from t where a = 1") == [(["x", None],)]
    alter_topic(cluster, "t", {"value.columns": "`b-c` array<string> FROM '/b'"})
    append(topic.partition(2), b'{"a":3,"b":["y"]}')
    fold(topic)
    assert rows(spark, "select a, `b-c` from t where `b-c` is not null order by 2") == [
        (1, ["x", None]),
        (None, ["y"]),
    ]


def test_a_declared_column_keeps_its_values_when_they_are_folded_after_the_view_was_registered(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    """The table over the topic has the column only since a later fold."""
    alter_topic(cluster, "t", {"value.columns": "a bigint"})
    append(topic.partition(0), b'{"a":1}')
    register(spark, cluster, names="t")
    sql = "select partition, offset, a, value_error from t order by 1, 2"
    for turn in range(3):
        assert rows(spark, sql) == local(cluster, sql)
        check(spark, cluster)
        fold(topic)
        assert rows(spark, sql) == local(cluster, sql)
        append(topic.partition(turn), b'{"a":2}')
    grown = add_partitions(cluster, "t", COUNT + 1)
    append(grown.partition(COUNT), b'{"a":3}')
    fold(grown)
    assert rows(spark, sql) == local(cluster, sql)
    topic.partition(0).truncate(1)
    assert rows(spark, sql) == local(cluster, sql)


def test_a_view_that_is_registered_while_a_topic_is_altered_has_all_values(
    spark: "SparkSession", cluster: Cluster
) -> None:
    """The record of the topic has the column; the tables of partitions get it one after the other."""
    made = create_topic(cluster, "few", COUNT - 1)
    for partition in made.partitions():
        append(partition, b'{"a":0}')
    columns = parse("a bigint, `b-c` array<string> FROM '/b'")

    def altered(record: TopicRecord | None) -> TopicRecord:
        assert record is not None
        return replace(record, configs={"value.columns": columns.text}, columns=columns.text)

    cluster.metadata_log.change_topic("few", altered)
    made.partition(0).table.widen(columns)
    register(spark, cluster, names="few")
    sql = "select partition, offset, a, value_error from few order by 1, 2"
    assert rows(spark, sql) == local(cluster, sql)
    for partition in cluster.topic("few").partitions():
        append(partition, b'{"a":1,"b":["x"]}', b"x")
    assert (COUNT - 2, 1, 1, None) in rows(spark, sql)
    assert rows(spark, sql) == local(cluster, sql)
    assert rows(spark, "select distinct `b-c` from few where a = 1") == [(["x"],)]


def test_records_that_moved_to_a_remote_root_say_what_to_do(
    spark: "SparkSession", cluster: Cluster, topic: Topic, tmp_path: Path
) -> None:
    before = local(cluster)
    register(spark, cluster, names="t")
    set_remote_root(cluster, tmp_path / "away")
    check(spark, cluster)
    append(topic.partition(0), b"c")
    move_topic(cluster, "t", [1] + [0] * (COUNT - 1))
    with pytest.raises(Exception, match=r"remote root.*call topics"):
        rows(spark, EVERY)
    register(spark, cluster, names="t")
    assert rows(spark, EVERY) == sorted([*before, (0, 2, b"c")])


def test_a_topic_that_was_made_again_says_what_to_do(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    register(spark, cluster, names="t")
    delete_topic(cluster, "t")
    with pytest.raises(Exception, match="there is no topic 't'"):
        rows(spark, EVERY)
    append(create_topic(cluster, "t", COUNT).partition(1), b"new")
    with pytest.raises(Exception, match=r"created again.*call topics"):
        rows(spark, EVERY)
    register(spark, cluster, names="t")
    assert rows(spark, EVERY) == [(1, 0, b"new")]
    check(spark, cluster)


def test_a_table_that_was_begun_again_says_what_to_do(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    """The new table is empty until it is folded, and no query may show that."""
    register(spark, cluster, names="t")
    refold(cluster.store, topic.directory, SystemClock())
    for _ in range(2):
        with pytest.raises(Exception, match=r"new table.*call topics"):
            rows(spark, EVERY)
        topic.forget_table()
        fold(topic)
    register(spark, cluster, names="t")
    check(spark, cluster)


def test_after_a_commit_of_another_tool_no_query_trusts_the_table(
    spark: "SparkSession", cluster: Cluster, topic: Topic
) -> None:
    register(spark, cluster, names="t")
    version = topic.table().refresh().version + 1
    foreign = Commit(CommitInfo(operation="WRITE", engineInfo="another tool"), (Txn("theirs", 1),))
    assert put_commit(cluster.store, topic.directory, version, foreign, SystemClock()) is None
    with pytest.raises(Exception, match=r"another tool.*root refold"):
        rows(spark, EVERY)
    register(spark, cluster, names="t")
    assert not has_tail(spark)
    assert rows(spark, EVERY) == local(cluster)


def test_any_directory_can_be_scanned(spark: "SparkSession", tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path / "größe & 100% #1" / "a b~2`it's"))
    topic = create_topic(cluster, "t", COUNT)
    append(topic.partition(0), b"a")
    fold(topic)
    append(topic.partition(1), b"b")
    register(spark, cluster, names="t")
    check(spark, cluster)


def test_without_a_table_over_the_topic_its_partitions_are_scanned(
    spark: "SparkSession", cluster: Cluster, topic: Topic, store_root: Path
) -> None:
    for file in (store_root / log_directory(topic.directory)).iterdir():
        file.unlink()
    register(spark, cluster, names="t")
    assert not has_tail(spark)
    assert rows(spark, EVERY) == local(cluster)


def test_a_table_that_lags_far_is_left_alone(cluster: Cluster, topic: Topic) -> None:
    partitions = topic.partitions()
    assert usable_table(cluster, "t", partitions, tail_max_bytes=0) is not None
    append(topic.partition(0), b"c")
    assert usable_table(cluster, "t", partitions, tail_max_bytes=0) is None
    assert usable_table(cluster, "t", partitions) is not None
    assert usable_table(cluster, "t", partitions[: PARTITIONS_MIN - 1]) is None
    fold(topic)
    assert usable_table(cluster, "t", partitions, tail_max_bytes=0) is not None


def test_any_predicate_finds_what_lakelog_sql_finds(
    spark: "SparkSession", cluster: Cluster, topic: Topic, seed: int
) -> None:
    clock = ManualClock(seed=seed)

    def drawn(*among: str) -> str:
        return among[int(clock.random() * len(among))]

    def below(end: int) -> str:
        return str(int(clock.random() * end))

    register(spark, cluster, names="t")
    for second in range(1, 13):
        at_us = NOW_US + second * 1_000_000
        append(topic.partition(int(below(COUNT))), b"x", None, at_us=at_us)
        if second % 5 == 0:
            fold(topic)
    for _ in range(8):
        parts = [
            f"partition {drawn('=', '<=', '<>')} {below(COUNT + 1)}",
            f"offset {drawn('=', '<', '>=')} {below(8)}",
            f"timestamp >= timestamp '2023-11-14 22:13:{20 + int(below(13))}Z'",
            "value is not null",
        ]
        where = " and ".join(part for part in parts if clock.random() < 0.6) or "true"
        sql = f"select partition, offset, value from t where {where} order by 1, 2"
        assert rows(spark, sql) == local(cluster, sql), where
