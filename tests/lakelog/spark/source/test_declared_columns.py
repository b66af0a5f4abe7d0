"""Declared columns as columns of a query: their types, where they are null, and what is refused."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakelog.spark.data_source import LakelogSource
from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.stream import StreamReader
from log_tables.cluster.admin.topic_admin import alter_topic
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.spark import Topics, loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECLARED = (
    "carrier string, delay double, at timestamp, tags array<string>, seats map<string, bigint>, "
    "to_ struct<code: string>, fare decimal(38,2), raw binary"
)
FLIGHT = (
    b'{"carrier":"UA","delay":2,"at":"2013-01-01T05:00:00Z","tags":["a"],"seats":{"x":1},'
    b'"to_":{"code":"IAH"},"fare":"-%d.5","raw":"AP8="}' % 10**35
)


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """A topic `t` with a flight, a value that does not fit, a tombstone; and `other`, with other types."""
    made = Topics(open_store(store_root))
    made.create("t", 1, value_columns=DECLARED)
    made.put("t", 0, Record(FLIGHT), Record(b'{"carrier":1}'), Record(None))
    made.create("other", 1, value_columns="delay string, carrier string, gate bigint")
    made.put("other", 0, Record(b'{"carrier":"AA","gate":7}'))
    return made


def table(topics: Topics, **options: object) -> list[dict[str, object]]:
    """The rows of a batch query, as its tasks give them."""
    reader = BatchReader(topics.options(**options))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return list(pa.Table.from_batches(batches).to_pylist())


def refused(topics: Topics, **options: object) -> str:
    with pytest.raises(InvalidArgument) as caught:
        LakelogSource(topics.options(**options)).schema()
    return caught.value.message


def test_a_query_names_declared_columns_among_those_of_every_row(topics: Topics) -> None:
    found = table(topics, columns="offset,carrier,value_error,delay")
    wrong = "/carrier is a whole number, not string"
    assert found == [
        {"offset": 0, "carrier": "UA", "value_error": None, "delay": 2.0},
        {"offset": 1, "carrier": None, "value_error": wrong, "delay": None},
        {"offset": 2, "carrier": None, "value_error": None, "delay": None},
    ]
    schema = LakelogSource(topics.options(columns="topic,tags,at,fare,raw")).schema()
    kinds = "topic:string,tags:array<string>,at:timestamp,fare:decimal(38,2),raw:binary"
    assert schema.simpleString() == f"struct<{kinds}>"
    fares = table(topics, columns="fare,raw")
    assert fares == [
        {"fare": Decimal(f"-{10**35}.50"), "raw": b"\x00\xff"},
        *[{"fare": None, "raw": None}] * 2,
    ]


def test_a_column_is_null_where_a_topic_or_a_file_lacks_it(topics: Topics) -> None:
    both = table(topics, subscribe="t,other", columns="topic,carrier,gate")
    assert min(both, key=str) == {"topic": "other", "carrier": "AA", "gate": 7}
    assert {row["gate"] for row in both if row["topic"] == "t"} == {None}
    alter_topic(topics.cluster, "t", {"value.columns": "carrier string, late boolean"})
    topics.put("t", 0, Record(b'{"carrier":"DL","delay":9,"late":true}'))
    rows = table(topics, columns="carrier,delay,late")
    assert rows[0] == {"carrier": "UA", "delay": 2.0, "late": None}
    assert rows[-1] == {"carrier": "DL", "delay": None, "late": True}


def test_a_stream_does_not_notice_that_its_topic_is_altered(topics: Topics) -> None:
    reader = StreamReader(topics.options(columns="offset,carrier,delay", startingOffsets="earliest"))
    start = reader.initialOffset()
    found = []
    for columns in ("carrier string, delay double, late boolean", "delay double", None):
        alter_topic(topics.cluster, "t", {"value.columns": columns})
        topics.put("t", 0, Record(b'{"carrier":"DL","delay":9,"late":true}'))
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        found += [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        start = end
    assert [tuple(row.values()) for row in found] == [
        (0, "UA", 2.0),
        (1, None, None),
        (2, None, None),
        (3, "DL", 9.0),
        (4, None, 9.0),
        (5, None, None),
    ]


def test_other_columns_are_refused_with_those_that_there_are(topics: Topics) -> None:
    unknown = refused(topics, columns="offset,gate")
    assert unknown.startswith("columns names 'gate'; there are key, value")
    assert unknown.endswith("_error, value_error, carrier, delay, at, tags, seats, to_, fare, raw")
    assert "topics other and t declare the column delay with different types" in refused(
        topics, subscribePattern="t|other", columns="delay"
    )
    assert "'gate'" in refused(topics, assign={"t": [0]}, columns="gate")
    assert "'Value'" in refused(topics, subscribe="missing", columns="offset,Value")


def test_names_that_differ_in_case_are_one_name(topics: Topics) -> None:
    assert "each once; Spark's names have no case" in refused(topics, columns="Delay,delay")
    assert "each once" in refused(topics, columns="delay,value,VALUE")
    assert "'Delay'; there are key" in refused(topics, columns="Delay")
    topics.create("cased", 1, value_columns="Delay double")
    said = "declare the columns {} and {}, which are one name in Spark"
    assert said.format("delay", "Delay") in refused(topics, subscribe="t,cased", columns="delay")
    assert said.format("Delay", "delay") in refused(topics, subscribe="t,cased", columns="Delay")
    topics.put("cased", 0, Record(b'{"Delay":3}'))
    assert table(topics, subscribe="cased", columns="Delay") == [{"Delay": 3.0}]


def test_a_topic_that_does_not_exist_is_named_and_no_column_of_it(topics: Topics) -> None:
    for given in ({"subscribe": "missing"}, {"subscribe": "t,missing"}, {"assign": {"missing": [0]}}):
        with pytest.raises(UnknownTopic, match="no topic 'missing' to read"):
            LakelogSource(topics.options(columns="offset,gate", **given)).schema()
    found = LakelogSource(topics.options(subscribe="t,missing", columns="delay")).schema()
    assert found.simpleString() == "struct<delay:double>"


def test_a_topic_that_comes_with_another_case_ends_the_query(topics: Topics) -> None:
    options = topics.options(subscribePattern="t.*", columns="topic,delay")
    reader = StreamReader({**options, "startingOffsets": "earliest"})
    start = reader.initialOffset()
    topics.create("t2", 1, value_columns="DELAY double")
    topics.put("t2", 0, Record(b'{"DELAY":7}'))
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="topic t2 has declared the column delay with another case"):
        reader.partitions(start, end)


def test_a_topic_that_comes_with_another_type_ends_the_query_and_no_value_is_converted(
    topics: Topics,
) -> None:
    options = topics.options(subscribePattern="t.*", columns="topic,delay,carrier")
    reader = StreamReader({**options, "startingOffsets": "earliest"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)] == [3]
    topics.create("later", 1, value_columns="delay bigint")
    topics.create("t2", 1, value_columns="carrier bigint")
    topics.put("t2", 0, Record(b'{"carrier":7}'))
    after = reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(InvalidArgument, match="topic t2 has declared the column carrier with another type"):
        reader.partitions(end, after)


@pytest.mark.spark
def test_spark_reads_them_in_batches_and_streams(spark: "SparkSession", topics: Topics) -> None:
    columns = "offset,carrier,at,tags,seats,to_"
    first, *others = loaded(spark, topics.options(columns=columns)).orderBy("offset").collect()
    at = datetime(2013, 1, 1, 5, tzinfo=UTC).timestamp()
    assert (first.carrier, first.at.timestamp(), first.tags) == ("UA", at, ["a"])
    assert (first.seats, first.to_.code) == ({"x": 1}, "IAH")
    assert [[*row][1:] for row in others] == [[None] * 5] * 2
    reader = spark.readStream.format("lakelog").options(**topics.options(columns=columns))
    stream = reader.option("startingOffsets", "earliest").load()
    query = stream.writeStream.format("memory").queryName("declared").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()
    carriers = spark.table("declared").where("carrier is not null")
    assert [row.carrier for row in carriers.collect()] == ["UA"]
