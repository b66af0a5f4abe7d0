"""The sink `lakelog` up to the transaction: what it takes, where a row goes, and what a task stages.

In this process; tests/lakelog/spark/sink/test_sink.py has Spark and a gateway to it.
"""

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.spark.sink.options import parse_sink
from lakelog.spark.sink.sink import REMEMBERED_BATCHES, BatchSink, StreamSink, of_micro_batch
from lakelog.spark.sink.task import BATCH_GROUP, StagedRows, stage_rows
from log_tables.clock import SystemClock
from log_tables.errors import (
    InvalidArgument,
    InvalidRecord,
    InvalidTopicName,
    InvalidValue,
    LakelogError,
    RecordTooLarge,
    UnknownTopic,
)
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import STAGING
from log_tables.record import Record, to_records, with_offsets
from log_tables.segments import staging
from log_tables.store.store import open_store
from tests.kit.spark import Topics

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES = {
    "key": pa.string(),
    "value": pa.string(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="Europe/Berlin"),
}
VALUE = StructType([StructField("value", StringType())])
TEXT, BYTES, INT, LONG, TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
Rows = dict[str, list[Any]]
Written = dict[str, list[Record]]


@pytest.fixture
def topics(store_root: Path) -> Topics:
    made = Topics(open_store(store_root))
    made.create("t", 3)
    made.create("u", 1, max_message_bytes="100")
    made.create("typed", 1, value_columns="n bigint", value_columns_mode="refuse")
    return made


def a_sink(topics: Topics, schema: StructType = VALUE, **options: str) -> BatchSink:
    return BatchSink({"path": topics.store.url, **options}, schema, False)


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def headers(*fields: tuple[str, DataType]) -> ArrayType:
    return ArrayType(StructType([StructField(name, kind) for name, kind in fields]))


def batches(*rows: Rows) -> list[pa.RecordBatch]:
    return [
        pa.record_batch([pa.array(column, TYPES[name]) for name, column in each.items()], names=[*each])
        for each in rows
    ]


def written(topics: Topics, message: WriterCommitMessage) -> Written:
    """The records that a task has staged, by partition (`t-0`), in order."""
    assert isinstance(message, StagedRows)
    found: Written = {}
    staging.check(topics.store, BATCH_GROUP, message.staged)
    for file in message.staged:
        for run in file.runs:
            assert run.topic_id == topics.cluster.topic(run.topic).topic_id
            for batch in staging.read_run(topics.store, file, run):
                nowhere = pa.array([0] * batch.num_rows, pa.int64()).to_numpy()
                records = found.setdefault(f"{run.topic}-{run.partition}", [])
                records += to_records(with_offsets([batch], nowhere))
    return found


def write(topics: Topics, *rows: Rows, **options: str) -> Written:
    """Give one task these rows, in as many batches; to `t` unless they name a topic."""
    if "topic" not in rows[0]:
        options = {"topic": "t", **options}
    sink = a_sink(topics, columns(value=TEXT, topic=TEXT), **options)
    copy: BatchSink = pickle.loads(pickle.dumps(sink))
    return written(topics, copy.write(iter(batches(*rows))))


def staged(topics: Topics, file_bytes: int, *rows: Rows) -> StagedRows:
    """Give one task these rows, which holds `file_bytes` of them; to `t` unless they name a topic."""
    options = {"path": topics.store.url} if "topic" in rows[0] else {"path": topics.store.url, "topic": "t"}
    return stage_rows(iter(batches(*rows)), parse_sink(options), BATCH_GROUP, file_bytes)


def values(found: Written) -> dict[str, list[bytes | None]]:
    return {partition: [record.value for record in records] for partition, records in found.items()}


def staged_files(topics: Topics) -> list[str]:
    return [item.path for item in topics.store.list(f"{STAGING}/")]


def test_every_column_of_a_row_is_in_its_record(topics: Topics) -> None:
    moment = datetime(2013, 1, 1, 12, tzinfo=UTC)
    found = write(
        topics,
        {
            "key": ["k", None],
            "value": ["v", None],
            "headers": [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None],
            "partition": [2, 2],
            "timestamp": [moment, moment],
        },
    )
    at_us = int(moment.timestamp() * 1e6)
    assert found == {
        "t-2": [
            Record(b"v", b"k", (("a", b"1"), ("a", None)), at_us, 0),
            Record(None, None, (), at_us, 0),
        ]
    }


def test_a_row_without_a_time_gets_the_time_at_which_it_is_written(topics: Topics) -> None:
    (record,) = write(topics, {"value": ["v"], "partition": [0]})["t-0"]
    assert record.timestamp_us is not None
    assert abs(record.timestamp_us - SystemClock().now_us()) < 3_600_000_000


def test_the_partition_is_the_rows_own_else_its_keys(topics: Topics) -> None:
    """The partition of a key is that of a gateway, and so of every other producer."""
    keys = [f"key-{number}" for number in range(50)]
    found = write(topics, {"key": keys, "value": keys, "partition": [None] * 49 + [1]})
    for index in range(3):
        mine = [key.encode() for key in keys[:49] if partition_for_key(key.encode(), 3, MURMUR3) == index]
        assert values(found)[f"t-{index}"] == mine + [b"key-49"] * (index == 1)


def test_rows_without_key_and_partition_stay_together_and_move_on_with_the_next_batch(topics: Topics) -> None:
    found = values(write(topics, *({"value": [f"{batch}"] * 10} for batch in range(9))))
    assert sorted(found) == ["t-0", "t-1", "t-2"]
    for column in found.values():
        for batch in range(9):
            assert column.count(b"%d" % batch) in (0, 10)


def test_tasks_that_write_little_do_not_all_write_to_one_partition(topics: Topics) -> None:
    used = {partition for _ in range(60) for partition in write(topics, {"value": ["v"]})}
    assert used == {"t-0", "t-1", "t-2"}


def test_the_rows_of_a_partition_keep_their_order(topics: Topics) -> None:
    numbers = [*range(1000)]
    rows = {"value": [str(number) for number in numbers], "partition": [number % 3 for number in numbers]}
    found = values(write(topics, rows, rows))
    for index in range(3):
        assert found[f"t-{index}"] == [b"%d" % number for number in numbers if number % 3 == index] * 2


def test_the_topic_is_the_rows_own(topics: Topics) -> None:
    found = write(topics, {"value": ["1", "2", "3"], "topic": ["t", "u", "t"], "partition": [2, 0, 0]})
    assert values(found) == {"t-0": [b"3"], "t-2": [b"1"], "u-0": [b"2"]}


def test_the_option_topic_wins_over_the_column(topics: Topics) -> None:
    found = write(topics, {"value": ["1", "2"], "topic": ["t", None]}, topic="u")
    assert values(found) == {"u-0": [b"1", b"2"]}


def test_a_task_without_rows_stages_nothing(topics: Topics) -> None:
    assert write(topics, {"value": []}) == {}
    assert staged_files(topics) == []


def test_a_task_holds_no_more_than_a_files_worth(topics: Topics) -> None:
    rows: Rows = {"value": ["x" * 600], "partition": [0]}
    message = staged(topics, 1000, *[rows] * 5)
    assert [len(file.runs) for file in message.staged] == [1, 1, 1]
    assert values(written(topics, message)) == {"t-0": [b"x" * 600] * 5}
    assert sorted(file.path for file in message.staged) == staged_files(topics)


def test_a_batch_of_spark_that_is_larger_than_a_file_is_staged_in_several(topics: Topics) -> None:
    """Spark counts its rows and not their bytes; those without key and partition stay together still."""
    rows: Rows = {"value": [f"{number:600}" for number in range(10)]}
    message = staged(topics, 2_000, rows)
    assert [len(file.runs) for file in message.staged] == [1] * len(message.staged)
    assert max(run.records * 600 for file in message.staged for run in file.runs) < 2 * 2_000
    (found,) = values(written(topics, message)).values()
    assert found == [b"%600d" % number for number in range(10)]


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ({"value": ["1"], "topic": [None]}, InvalidRecord, "a row has no topic"),
        ({"value": ["1"], "topic": ["nowhere"]}, UnknownTopic, "no topic 'nowhere'"),
        ({"value": ["1"], "topic": ["a b"]}, InvalidTopicName, "'a b'"),
        ({"value": ["1"], "topic": ["__maintenance"]}, InvalidTopicName, "is internal"),
        (
            {"value": ["1"], "partition": [3]},
            InvalidRecord,
            "record 1: topic 't' has no partition 3; use 0 to 2",
        ),
        ({"value": ["1", "2"], "partition": [-1, 0]}, InvalidRecord, "no partition -1"),
        ({"value": ["1" * 101], "topic": ["u"]}, RecordTooLarge, "101 bytes, topic 'u' takes 100"),
        ({"value": ["1"], "headers": [[{"key": None, "value": b""}]]}, InvalidRecord, "a header has no key"),
        (
            {"value": ['{"n": 1}', '{"n": "x"}'], "topic": ["typed"] * 2},
            InvalidValue,
            "record 2: /n is text, not bigint, as topic 'typed' declares it",
        ),
        ({"value": ["1"], "headers": [[None]]}, InvalidRecord, "a header has no key"),
    ],
)
def test_a_row_that_is_no_record_fails_its_task_which_leaves_nothing(
    rows: Rows, error: type[LakelogError], said: str, topics: Topics
) -> None:
    """Neither of what came before it."""
    good = {name: column[:0] for name, column in rows.items()} | {"value": ["good"]}
    good |= {"topic": ["t"]} if "topic" in rows else {}
    good |= {name: [None] for name in rows.keys() - {"value", "topic"}}
    with pytest.raises(error, match=said):
        staged(topics, 1, good, rows)
    assert staged_files(topics) == []


@pytest.mark.parametrize("kind", [TEXT, BYTES])
def test_key_and_value_are_text_or_bytes(kind: DataType, topics: Topics) -> None:
    of_headers = headers(("key", TEXT), ("value", BYTES))
    a_sink(topics, columns(key=kind, value=kind, headers=of_headers, partition=INT), topic="t")
    a_sink(topics, columns(value=kind, topic=TEXT, timestamp=TIME))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (columns(key=TEXT), "no column 'value' among key"),
        (columns(value=INT), "the column 'value' is int; cast it to string or binary"),
        (columns(value=NullType()), "the column 'value' is void"),
        (columns(value=columns(a=INT)), "the column 'value' is struct"),
        (columns(value=TEXT, key=LONG), "the column 'key' is bigint"),
        (columns(value=TEXT, topic=BYTES), "the column 'topic' is binary; cast it to string"),
        (columns(value=TEXT, partition=LONG), "the column 'partition' is bigint; cast it to int"),
        (columns(value=TEXT, timestamp=LONG), "the column 'timestamp' is bigint; cast it to timestamp"),
        (columns(value=TEXT, headers=MapType(TEXT, BYTES)), "the column 'headers' is map"),
        (columns(value=TEXT, headers=ArrayType(BYTES)), "the column 'headers' is array<binary>"),
        (
            columns(value=TEXT, headers=headers(("key", TEXT), ("value", TEXT))),
            "cast it to array<struct<key:string,value:binary>>",
        ),
        (
            columns(value=TEXT, headers=headers(("value", BYTES), ("key", TEXT))),
            "cast it to array<struct<key:string,value:binary>>",
        ),
        (columns(value=TEXT, offset=LONG), "the column 'offset' is not a column of a record"),
        (columns(value=TEXT, Value=TEXT), "the column 'Value' is not a column of a record"),
    ],
)
def test_columns_that_are_no_records_are_refused_before_a_task_runs(
    schema: StructType, said: str, topics: Topics
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        a_sink(topics, schema, topic="t")
    assert said in caught.value.message


def test_a_column_that_is_there_twice_is_refused(topics: Topics) -> None:
    schema = StructType([*VALUE, *VALUE])
    with pytest.raises(InvalidArgument, match="several columns 'value'"):
        StreamSink({"path": topics.store.url, "topic": "t"}, schema)


def test_rows_that_name_no_topic_need_the_option(topics: Topics) -> None:
    with pytest.raises(InvalidArgument, match="set the option topic, or add a column 'topic'"):
        a_sink(topics)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("subscribe", "t", "the option subscribe is for reading"),
        ("includeHeaders", "true", "the option includeHeaders is for reading"),
        ("kafka.bootstrap.servers", "there:9092", "about a Kafka broker"),
        ("topics", "t", "did you mean topic"),
        ("gateway", "there:8082", "gateway='there:8082' is not a URL"),
        ("path", " ", "the option path is missing"),
    ],
)
def test_wrong_options_are_refused(option: str, value: str, said: str, topics: Topics) -> None:
    with pytest.raises(InvalidArgument) as caught:
        BatchSink({"path": topics.store.url, "topic": "t", option: value}, VALUE, False)
    assert said in caught.value.message


def test_a_topic_that_nobody_can_write_is_refused(topics: Topics) -> None:
    for name in ("__consumer_offsets", "a/b"):
        with pytest.raises(InvalidTopicName):
            a_sink(topics, topic=name)


def test_what_spark_adds_to_the_options_is_taken(topics: Topics) -> None:
    a_sink(topics, topic="t", checkpointLocation="there", queryName="q")


def test_overwriting_is_refused(topics: Topics) -> None:
    with pytest.raises(InvalidArgument, match=r"use mode\('append'\)"):
        BatchSink({"path": topics.store.url, "topic": "t"}, VALUE, True)


def attempts(topics: Topics, sink: BatchSink | StreamSink, count: int) -> list[StagedRows]:
    return [sink.write(iter(batches({"value": ["v"]}))) for _ in range(count)]


def test_what_tasks_have_staged_is_deleted_when_another_has_failed(topics: Topics) -> None:
    sink = a_sink(topics, topic="t")
    messages: Sequence[StagedRows | None] = [*attempts(topics, sink, 2), None]
    sink.abort(messages)
    assert staged_files(topics) == []


def test_what_may_have_been_published_is_left_when_a_commit_has_failed(topics: Topics) -> None:
    """Every task has its message then."""
    sink = StreamSink({"path": topics.store.url, "topic": "t"}, VALUE)
    sink.abort(attempts(topics, sink, 2), 7)
    assert len(staged_files(topics)) == 2


def test_a_micro_batch_is_known_by_its_query_and_number() -> None:
    assert of_micro_batch("q", 3) == ("q", "3", ())
    assert of_micro_batch("q", REMEMBERED_BATCHES + 5) == ("q", "10005", ("5",))


def test_a_micro_batch_of_no_query_is_not_published(topics: Topics) -> None:
    """All such queries would be one group, and skip what one of them has written."""
    sink = StreamSink({"path": topics.store.url, "topic": "t", "gateway": "http://127.0.0.1:1"}, VALUE)
    with pytest.raises(InvalidArgument, match="no query id"):
        sink.commit(attempts(topics, sink, 1), 0)
