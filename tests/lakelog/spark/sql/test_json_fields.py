"""The JSON of a topic's records as columns of a view, whatever the records hold."""

from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.sql.system_tables import SYSTEM_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tests.kit.views import append, register, rows

pytestmark = pytest.mark.spark


VALUES: list[tuple[bytes | None, int | None, str | None, bool]] = [
    # the value, the columns `id long` and `name string`, whether it is counted as bad
    (b'{"id":1,"name":"a"}', 1, "a", False),
    (b' {\n"id":2}\t', 2, None, False),
    (b"{}", None, None, False),
    (b'{"id":null,"other":[1]}', None, None, False),
    (None, None, None, False),
    (b'{"id":1,"id":3}', 3, None, False),
    (b'{"ID":4}', None, None, False),
    (b'{"name":{"q":1}}', None, '{"q":1}', False),
    (b'{"id":"x","name":"a"}', None, "a", True),
    (b'{"id":1.5,"name":"a"}', None, "a", True),
    (b"", None, None, True),
    (b"  ", None, None, True),
    (b"oops", None, None, True),
    (b"null", None, None, True),
    (b"1", None, None, True),
    (b"[1]", None, None, True),
    (b'[{"id":1}]', None, None, True),
    (b'{"id":1', None, None, True),
    (b'{"id":1} x', None, None, True),
    (b'{"id":1}{"id":2}', None, None, True),
    (b'{"id":1}],"values":[{"id":2}', None, None, True),
    (b'{"id":1}],"again":[{"id":2}', None, None, True),
    (b'{"id":1},"end":0,"again":{"id":2}', None, None, True),
    (b'{"id":1}],"corrupt":"x","values":[{"id":4}', None, None, True),
    (b'{"id":1}],"end":0}', None, None, True),
    (b'{"id":1}],"end":0} any bytes at all', None, None, True),
    (b'{"id":1},"values":[{"id":9}],"end":0}', None, None, True),
    (b'{"id":1},"end":0}', None, None, True),
    (b'{"id":1},{"id":2}', None, None, True),
    (b'{"id":1},"x":2', None, None, True),
    (b'{"id":1}]}', None, None, True),
    (b'{"id":1},{"id":2}]}', None, None, True),
    (b"{'id':1}", None, None, True),
    (b'{"id":NaN}', None, None, True),
    (b'{"id":1,"name":"\xff"}', None, None, True),
    (b'{"a":' * 2_000 + b"1" + b"}" * 2_000, None, None, True),
]


def test_no_value_is_lost_whatever_it_is(spark: "SparkSession", cluster: Cluster) -> None:
    append(create_topic(cluster, "t").partition(0), *[value for value, *_ in VALUES], key=b"k")
    register(spark, cluster, json={"t": "id long, name string"})
    assert spark.table("t_json").schema.simpleString() == (
        "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,key:binary,key_text:string,id:bigint,name:string,"
        "_raw:binary>"
    )
    assert rows(spark, "select id, name, _raw from t_json order by offset") == [
        (number, name, value if bad else None) for value, number, name, bad in VALUES
    ]
    assert rows(spark, "select count(*), count_if(_raw is not null) from t_json where key = 'k'") == [
        (len(VALUES), sum(bad for *_, bad in VALUES))
    ]


def test_a_nested_field_of_another_type_keeps_its_neighbours(spark: "SparkSession", cluster: Cluster) -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StructType

    good, bad = b'{"n":{"x":1,"y":2},"l":[1]}', b'{"n":{"x":"one","y":2},"l":["x"]}'
    append(create_topic(cluster, "t").partition(0), good, bad)
    inner = StructType().add("x", IntegerType(), nullable=False).add("y", IntegerType())
    register(spark, cluster, json={"t": StructType().add("n", inner).add("l", ArrayType(IntegerType()))})
    assert rows(spark, "select n.x, n.y, l, _raw from t_json order by offset") == [
        (1, 2, [1], None),
        (None, 2, None, bad),
    ]


def test_a_time_is_that_of_the_declared_column(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", configs={"value.columns": "at timestamp"})
    append(topic.partition(0), b'{"at":"2026-03-29T03:30:00+02:00"}', b'{"at":"2026-03-29T01:30:00"}')
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        register(spark, cluster, json={"t": "at timestamp"})
        for view in ("t", "t_json"):
            found = rows(spark, f"select distinct unix_micros(at), string(at) from {view}")
            assert found == [(1_774_747_800_000_000, "2026-03-28 21:30:00")]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_a_negative_zero_is_found_as_zero(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", configs={"value.columns": "d double, l array<double>"})
    for value in (b"-0.0", b"0.0", b"1.5"):
        append(topic.partition(0), b'{"d":%s,"l":[%s]}' % (value, value))
    register(spark, cluster)
    for where in ("d = 0", "d >= 0 and d < 1", "d <= 0", "array_contains(l, 0D) and d <> 1.5"):
        assert rows(spark, f"select offset from t where {where} order by offset") == [(0,), (1,)], where


def test_fields_named_like_columns_get_a_suffix(spark: "SparkSession", cluster: Cluster) -> None:
    value = b'{"offset":7,"Key":"k","_raw":1,"key_json":2,"x.y`z":3,"Case":4,"case":5}'
    append(create_topic(cluster, "t").partition(0), value)
    register(spark, cluster, json=True)
    found = [column for column in spark.table("t_json").columns if column != "timestamp"]
    values = rows(spark, "select * except (timestamp) from t_json")[0]
    assert dict(zip(found, values, strict=True)) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "key": None,
        "key_text": None,
        "offset_json": 7,
        "Key_json": "k",
        "_raw": 1,
        "key_json_json": 2,
        "x.y`z": 3,
        "Case": 4,
        "case_json": 5,
        "_raw_json": None,
    }


def test_a_schema_is_inferred_from_the_newest_records(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 3)
    append(topic.partition(0), *[b'{"old":1}'] * 50)
    append(
        topic.partition(0), b'{"i":1,"f":1.5,"b":true,"s":"2024-01-01","n":null,"m":1,"e":{},"l":[{"a":1}]}'
    )
    append(topic.partition(1), b'{"m":"x","Big":{"Case":1,"case":2}}', b"oops")
    views = register(spark, cluster, json={"t": True}, sample_records=6)
    assert views == ["__cluster_metadata", "t", "t_json", *SYSTEM_TABLES]
    kinds = {field.name: field.dataType.simpleString() for field in spark.table("t_json").schema}
    assert {name: kinds.get(name) for name in ("old", "i", "f", "b", "s", "n", "m", "e", "l", "Big")} == {
        "old": "bigint",
        "i": "bigint",
        "f": "double",
        "b": "boolean",
        "s": "string",
        "n": "string",
        "m": "string",
        "e": "string",
        "l": "array<struct<a:bigint>>",
        "Big": "string",
    }
    assert rows(spark, "select m, Big from t_json where m is not null order by partition") == [
        ("1", None),
        ("x", '{"Case":1,"case":2}'),
    ]
    assert rows(spark, "select count(*), count(_raw), sum(old) from t_json") == [(53, 1, 50)]
    register(spark, cluster, json=True, sample_records=1)
    assert "old" not in spark.table("t_json").columns


def test_an_empty_topic_has_json_columns_too(spark: "SparkSession", cluster: Cluster) -> None:
    topic = create_topic(cluster, "t", 2)
    register(spark, cluster, json=True)
    assert spark.table("t_json").columns == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "key_text",
        "_raw",
    ]
    assert rows(spark, "select count(*), count(_raw) from t_json") == [(0, 0)]
    append(topic.partition(0), b'{"a":1}', b"oops")
    assert rows(spark, "select offset, _raw from t_json order by 1") == [(0, None), (1, b"oops")]
