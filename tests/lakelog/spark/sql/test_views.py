"""A topic is a SQL table in Spark: what its views show, and how little of the tables a query reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from log_tables.cluster.admin.audit_log import append_events, keep_audit_topic
from log_tables.cluster.admin.topic_admin import add_partitions, create_topic, delete_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError, UnknownTopic
from log_tables.sql.lag import LAG_SCHEMA, OFFSETS_SCHEMA
from log_tables.sql.system_tables import SYSTEM_TABLES
from log_tables.store.store import open_store
from tests.kit.groups import commit
from tests.kit.partitions import append_each, thin_out
from tests.kit.support import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.kit.views import NOW_US, append, files_read, register, rows

pytestmark = pytest.mark.spark

SECOND_US = 1_000_000


def test_a_topic_is_a_view_over_all_its_partitions(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "orders", 3)
    append(topic.partition(0), b"a", b"b", key=b"k")
    append(topic.partition(0), b"c")
    append(topic.partition(2), b"d", None)
    assert register(spark, cluster) == ["__cluster_metadata", "orders", *SYSTEM_TABLES]
    view = spark.table("orders")
    assert view.schema.simpleString() == (
        "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,key:binary,value:binary,"
        "headers:array<struct<key:string,value:binary>>,value_text:string,key_text:string>"
    )
    assert rows(spark, "select topic, partition, offset, value from orders order by 2, 3") == [
        ("orders", 0, 0, b"a"),
        ("orders", 0, 1, b"b"),
        ("orders", 0, 2, b"c"),
        ("orders", 2, 0, b"d"),
        ("orders", 2, 1, None),
    ]
    assert rows(
        spark, "select unix_micros(timestamp), key, headers[0].key from orders where value = 'a'"
    ) == [(NOW_US, b"k", "h")]
    assert rows(spark, "select key_text from __cluster_metadata") == [("orders",)]
    append(topic.partition(1), b"\xff", "ü".encode(), key=b"\xc3")
    text = "select offset, value_text, key_text from orders where partition = 1 order by 1"
    assert rows(spark, text) == [(0, None, None), (1, "ü", None)]


def test_the_audit_log_is_a_view(spark: "SparkSession", cluster: Cluster) -> None:
    keep_audit_topic(cluster, {})
    event = AuditRecord(
        uid="u", kind=AuditKind.DENIAL, time_ms=5, operation="READ", principal="User:ann", error_code=40301
    )
    append_events(cluster, [event])
    assert "audit" in register(spark, cluster)
    assert rows(
        spark, "select unix_millis(time), kind, principal, operation, error_code, `count` from audit"
    ) == [(5, "denial", "User:ann", "READ", 40301, 1)]


def test_a_view_shows_what_was_appended_since(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "orders", 2)
    register(spark, cluster, names="orders", json="a long")
    kept = spark.table("orders")
    assert kept.count() == 0
    for count in (1, 2):
        append(topic.partition(0), b'{"a":1}')
        append(topic.partition(1), b'{"a":2}')
        assert rows(spark, "select count(*) from orders") == [(2 * count,)]
        assert rows(spark, "select sum(a) from orders_json") == [(3 * count,)]
        assert kept.count() == 2 * count


def test_a_view_follows_what_rewrites_and_retention_do(spark: "SparkSession", cluster: Cluster) -> None:
    partition = create_topic(cluster, "orders").partition(0)
    for value in (b"a", b"b", b"c", b"d"):
        append(partition, value)
    register(spark, cluster)
    assert rows(spark, "select count(*) from orders") == [(4,)]
    thin_out(partition, partition.snapshot.segments[:3], keep=lambda offset: offset != 1)
    assert rows(spark, "select offset, value from orders order by 1") == [(0, b"a"), (2, b"c"), (3, b"d")]
    partition.truncate(3)
    assert rows(spark, "select offset, value from orders") == [(3, b"d")]


def test_records_below_the_log_start_are_not_there(spark: "SparkSession", cluster: Cluster) -> None:
    partition = create_topic(cluster, "orders").partition(0)
    append(partition, *[b"x"] * 5)
    append(partition, *[b"x"] * 5)
    partition.truncate(7)
    register(spark, cluster)
    assert rows(spark, "select min(offset), max(offset), count(*) from orders") == [(7, 9, 3)]
    partition.truncate(9)
    register(spark, cluster)
    assert rows(spark, "select offset from orders") == [(9,)]


def test_predicates_skip_the_files_that_cannot_match(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "orders", 2)
    for index in range(2):
        for second in range(20):
            append(topic.partition(index), b"x", b"y", at_us=NOW_US + second * SECOND_US)
    register(spark, cluster, names=["orders"], json={"orders": "a long"})
    for view in ("orders", "orders_json"):
        everything = spark.table(view)
        assert files_read(everything) == [20, 20]
        assert files_read(everything.where("partition = 1")) == [20]
        assert files_read(everything.where("offset between 10 and 13")) == [2, 2]
        assert files_read(everything.where("partition = 0 and offset >= 36")) == [2]
        late = f"timestamp_micros({NOW_US + 15 * SECOND_US})"
        found = everything.where(f"timestamp > {late}")
        assert sum(files_read(found)) < 12
        assert found.count() == 2 * 2 * 4
        assert rows(spark, f"select count(*) from {view} where topic = 'another'") == [(0,)]


def test_an_offset_among_a_thousand_segments_is_one_file(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "orders", 2)
    partition = cluster.claim(topic, 1)
    append_each(partition, [b"%d" % number for number in range(1_000)])
    partition.checkpoint()
    register(spark, cluster, names=["orders"])
    found = spark.sql("select value from orders where partition = 1 and offset = 567")
    assert files_read(found) == [1]
    assert [bytes(row.value) for row in found.collect()] == [b"567"]


@pytest.mark.parametrize("name", ["orders.v1-a", "1", "select"])
def test_any_topic_name_can_be_quoted(spark: "SparkSession", cluster: Cluster, name: str) -> None:
    append(create_topic(cluster, name).partition(0), b'{"a":1}')
    assert register(spark, cluster, names=name, json=True) == [name, f"{name}_json"]
    assert rows(spark, f"select topic, `{name}`.offset from `{name}`") == [(name, 0)]
    assert rows(spark, f"select a from `{name}_json`") == [(1,)]
    delete_topic(cluster, name)
    register(spark, cluster)
    assert not spark.catalog.tableExists(f"`{name}`")


def test_any_directory_can_be_read(spark: "SparkSession", tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path / "größe & 100% #1" / "a b~2`it's"))
    append(create_topic(cluster, "t").partition(0), b"x")
    commit(cluster, "g", "t", 0, 1)
    register(spark, cluster)
    assert rows(spark, "select offset, value from t") == [(0, b"x")]
    assert rows(spark, "select group, lag from consumer_lag") == [("g", 0)]


def test_a_second_call_follows_the_topics(spark: "SparkSession", cluster: Cluster) -> None:
    create_topic(cluster, "gone")
    again = create_topic(cluster, "again")
    append(again.partition(0), b"old")
    create_topic(cluster, "grown")
    register(spark, cluster, json="a long")
    delete_topic(cluster, "gone")
    delete_topic(cluster, "again")
    append(create_topic(cluster, "again").partition(0), b"new")
    append(add_partitions(cluster, "grown", 2).partition(1), b"x")
    views = register(spark, cluster, names=["again"])
    assert views == ["again"]
    assert rows(spark, "select value from again") == [(b"new",)]
    assert not spark.catalog.tableExists("gone")
    assert not spark.catalog.tableExists("gone_json")
    assert not spark.catalog.tableExists("again_json")  # no longer asked for
    assert rows(spark, "select count(*) from grown_json") == [(0,)]  # not spoken of
    register(spark, cluster, names=["grown"])
    assert rows(spark, "select partition, value from grown") == [(1, b"x")]


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"names": "nope"}, UnknownTopic, "'nope'"),
        ({"names": ["orders", "nope"]}, UnknownTopic, "'nope'"),
        ({"json": {"nope": True}}, UnknownTopic, "'nope', which is none of the topics; there are .*orders"),
        ({"json": {"orders": "id longg"}}, InvalidArgument, "'id longg' of topic orders.*LONGG"),
        ({"json": {"orders": "int"}}, InvalidArgument, "'int' of topic orders has no fields"),
        ({"json": {"orders": ""}}, InvalidArgument, "'' of topic orders has no fields"),
        ({"json": {"orders": 5}}, InvalidArgument, "schema 5 of topic orders"),
        ({"json": {"orders": "a int, a int"}}, InvalidArgument, "'a' twice"),
        ({"json": {"orders": "a map<int, int>"}}, InvalidArgument, "map<int,int>"),
        ({"json": True, "sample_records": 0}, InvalidArgument, "sample_records=0"),
    ],
)
def test_what_cannot_be_registered_is_named_and_leaves_the_views_alone(
    spark: "SparkSession", cluster: Cluster, options: dict[str, Any], kind: type[LakelogError], said: str
) -> None:
    append(create_topic(cluster, "orders").partition(0), b"x")
    register(spark, cluster)
    with pytest.raises(kind, match=said):
        register(spark, cluster, **options)
    assert rows(spark, "select count(*) from orders") == [(1,)]


@pytest.mark.parametrize("names", [("Orders", "orders"), ("t_json", "t")])
def test_views_that_are_one_to_spark_are_refused(
    spark: "SparkSession", cluster: Cluster, names: Sequence[str]
) -> None:
    for name in names:
        create_topic(cluster, name)
    with pytest.raises(InvalidArgument, match=f"{names[0]!r}.*one name in Spark"):
        register(spark, cluster, json=True)
    assert register(spark, cluster, names=[names[1]], json=True) == [names[1], f"{names[1]}_json"]


def test_a_missing_root_is_named(spark: "SparkSession", tmp_path: Path) -> None:
    from lakelog.spark.sql.views import topics

    with pytest.raises(InvalidArgument, match="nowhere"):
        topics(spark, tmp_path / "nowhere")
    with pytest.raises(InvalidArgument):
        topics(spark, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_needs_a_file_system_that_spark_has(spark: "SparkSession", s3: S3Server) -> None:
    from lakelog.spark.sql.views import topics

    url = s3.bucket("views")
    cluster = Cluster.open(open_store(url, s3.options))
    create_topic(cluster, "t")
    with pytest.raises(InvalidArgument, match=r"s3a://.*S3AFileSystem.*hadoop-aws"):
        topics(spark, url, store_options=s3.options)


def test_where_consumer_groups_are_is_looked_up_by_every_query(
    spark: "SparkSession", cluster: Cluster
) -> None:
    partition = create_topic(cluster, "orders", 2).partition(0)
    append(partition, *[b"x"] * 5)
    register(spark, cluster)
    assert spark.table("consumer_lag").columns == LAG_SCHEMA.names
    assert spark.table("consumer_offsets").columns == OFFSETS_SCHEMA.names
    assert rows(spark, "select * from consumer_lag") == []
    kept = spark.table("consumer_lag").where("lag > 0").select("group", "partition", "lag")
    assert kept.collect() == []
    commit(cluster, "g", "orders", 0, 2)
    assert [tuple(row) for row in kept.collect()] == [("g", 0, 3)]
    append(partition, b"x")
    commit(cluster, "g", "orders", 0, 4)
    commit(cluster, "g", "orders", 1, 0)
    assert [tuple(row) for row in kept.collect()] == [("g", 0, 2)]
    assert rows(spark, "select offset, topic_id from consumer_offsets order by partition") == [
        (4, cluster.topic("orders").topic_id),
        (0, cluster.topic("orders").topic_id),
    ]
    assert rows(spark, "select group, sum(lag) from consumer_lag group by group") == [("g", 2)]


def test_the_tables_of_groups_can_be_had_in_plain_sql(spark: "SparkSession", cluster: Cluster) -> None:
    append(create_topic(cluster, "orders").partition(0), b"x")
    options = f"OPTIONS (path '{cluster.store.url}', table 'consumer_lag')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW behind USING lakelog {options}")
    assert rows(spark, "select * from behind") == []
    commit(cluster, "g", "orders", 0, 0)
    assert rows(spark, "select group, topic, partition, lag from behind") == [("g", "orders", 0, 1)]


def test_a_topic_of_the_name_of_a_table_comes_first(spark: "SparkSession", cluster: Cluster) -> None:
    append(create_topic(cluster, "consumer_lag").partition(0), b"mine")
    create_topic(cluster, "Consumer_Offsets")
    register(spark, cluster, names="consumer_offsets")
    topics = ["__cluster_metadata", "Consumer_Offsets", "consumer_lag"]
    assert register(spark, cluster) == [*topics, "maintenance_runs", "audit", "audit_writes", "mirror_gaps"]
    assert rows(spark, "select value from consumer_lag") == [(b"mine",)]
    assert "value" in spark.table("consumer_offsets").columns
    delete_topic(cluster, "consumer_lag")
    register(spark, cluster)
    assert rows(spark, "select * from consumer_lag") == []
    assert spark.table("consumer_lag").columns == LAG_SCHEMA.names
