"""A mirror says whether its copies are their sources: what is equal is, and the first difference is named."""

from collections.abc import Callable
from itertools import count
from typing import Any

import confluent_kafka
import numpy as np
import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from jobs.mirror.source import Source
from jobs.mirror.verify import Sample, Verdict, ranges_of, verify
from log_tables.cluster.admin.mirror_admin import create_copy, stop_copy
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.record import Record, input_batch, with_offsets
from log_tables.sql.query import query
from log_tables.sql.record_digest import DigestPart, digest_sql
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka import librdkafka_producer, produce, read_all
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, cluster, delete_before, level, name, note, running
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]

WIDTH = 10
Change = Callable[[list[Record]], list[Record]]


def checked(cluster: Cluster, kafka: Broker, *topics: str, **how: Any) -> list[Verdict]:
    """The verdicts of the mirror NAME over ranges of WIDTH offsets."""
    return verify(cluster, NAME, Source(kafka.bootstrap), topics, width=WIDTH, **how)


def equal(cluster: Cluster, kafka: Broker, topic: str, records: int) -> Verdict:
    """Check that the only partition of a topic is equal, with so many records; returns its verdict."""
    (verdict,) = checked(cluster, kafka, topic)
    assert (verdict.failed, verdict.difference) == ("", None)
    assert verdict.records == records
    return verdict


def copied(
    cluster: Cluster, kafka: Broker, topic: str, change: Change = lambda each: each, ahead: int = 0
) -> None:
    """The copy of a topic of one partition, with what `change` makes of its records, and an end so far behind
    that of the source.
    """
    source = Source(kafka.bootstrap)
    if NAME not in cluster.metadata_log.mirrors:
        note(cluster, kafka, f"^{topic}.*")
    (topic_id,) = source.ids([topic]).values()
    assert isinstance(topic_id, str)
    made = create_copy(cluster, NAME, topic, topic_id, 1, source.settings_of(topic))
    log = cluster.claim(made, 0, mirror=NAME)
    config: dict[str, Any] = {"isolation.level": "read_committed"}
    there = read_all(kafka.bootstrap, topic, **config)
    records = change(
        [Record(each.value, each.key, each.headers, each.time[1] * 1000, each.offset) for each in there]
    )
    offsets = np.array([each.offset for each in records], np.int64)
    end = ahead + max((each.offset for each in there), default=-1) + 1
    log.mirror(with_offsets([input_batch(records, 0)], offsets), end)


def test_odd_records_are_equal_and_the_sql_gives_the_digests_of_both_sides(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name, 2)
    producer = librdkafka_producer(kafka.bootstrap)
    odd: list[tuple[bytes | None, bytes | None]] = [(b"", b""), (None, b"k"), (b"v", None), (None, None)]
    for number in range(57):
        value, key = odd[number % 4]
        headers: Any = [("a", b"1"), ("a", None), ("", b""), ("é", b""), ("a", b"1")][: number % 6]
        producer.produce(name, value, key, headers=headers, partition=number % 2, timestamp=1 + number)
    assert producer.flush(WAIT_S) == 0
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        verdicts = checked(cluster, kafka, name)
    assert [(each.is_equal, each.start, each.end) for each in verdicts] == [(True, 0, 29), (True, 0, 28)]
    told = [(each.partition, one.start, one.records, one.here) for each in verdicts for one in each.ranges]
    assert [one.here for each in verdicts for one in each.ranges] == [
        one.source for each in verdicts for one in each.ranges
    ]
    parts = [DigestPart(name, each.partition, "", each.start, each.end) for each in verdicts]
    answer = query(cluster, digest_sql(parts, WIDTH)).drop_columns("topic")
    assert [tuple(row.values()) for row in answer.to_pylist()] == told
    assert len({digest for *_, digest in told}) == 6


def test_times_of_the_append_and_gaps_of_transactions_are_equal(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name, message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions()
    for end in "caacaaaco":
        producer.begin_transaction()
        for _ in range(4):
            producer.produce(name, end)
        assert producer.flush(WAIT_S) == 0
        if end == "c":
            producer.commit_transaction()
        elif end == "a":
            producer.abort_transaction()
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        verdict = equal(cluster, kafka, name, 12)
        assert (verdict.start, verdict.end) == (0, 40)
        assert [each.records for each in verdict.ranges] == [4, 4, 0, 4]
        producer.abort_transaction()


def test_records_that_the_source_has_compacted_away_are_no_difference(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    config: dict[str, Any] = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.01}
    kafka.create_topic(name, 1, cleanup_policy="compact", **config)
    numbers = count()

    def send(records: int) -> None:
        producer = librdkafka_producer(kafka.bootstrap)
        for each in (next(numbers) for _ in range(records)):
            producer.produce(name, b"%d" % each, b"%d" % (each % 7))
        assert producer.flush(WAIT_S) == 0

    send(100)
    copied(cluster, kafka, name)
    assert equal(cluster, kafka, name, 100).removed == 0

    def is_compacted() -> bool:
        send(1)
        return len(read_all(kafka.bootstrap, name)) < 50

    wait_until(is_compacted, "the source is compacted")
    verdict = equal(cluster, kafka, name, sum(each.offset < 100 for each in read_all(kafka.bootstrap, name)))
    assert verdict.removed == 100 - verdict.records > 0
    assert [each.here == each.source for each in verdict.ranges] == [
        each.removed == 0 for each in verdict.ranges
    ]


def test_what_either_side_has_deleted_is_not_compared(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, [b"%d" % number for number in range(50)])
    copied(cluster, kafka, name)
    delete_before(kafka, name, 15)
    assert equal(cluster, kafka, name, 35).start == 15
    log = cluster.claim(cluster.topic(name), 0, mirror=NAME)
    log.truncate(22)
    assert equal(cluster, kafka, name, 28).start == 22
    delete_before(kafka, name, 50)
    assert equal(cluster, kafka, name, 0).ranges == []


def test_what_is_deleted_while_it_is_compared_is_no_difference(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name, 2)
    producer = librdkafka_producer(kafka.bootstrap)
    for number in range(80):
        producer.produce(name, b"%d" % number, partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)

    def delete(verdict: Verdict) -> None:
        """Delete what partition 1 has below 25 at the source, and below 27 here, before it is read."""
        if verdict.partition == 0:
            place = confluent_kafka.TopicPartition(name, 1, 25)
            kafka.admin.delete_records([place])[place].result(WAIT_S)
            elsewhere = Cluster.open(cluster.store)
            elsewhere.claim(elsewhere.topic(name), 1, mirror=NAME).truncate(27)

    verdicts = checked(cluster, kafka, on_verdict=delete)
    assert [(each.failed, each.difference) for each in verdicts] == [("", None)] * 2
    assert [(each.start, each.records) for each in verdicts] == [(0, 40), (0, 13)]


def test_a_topic_that_has_stopped_is_compared_as_far_as_it_is(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, [b"0", b"1"])
    copied(cluster, kafka, name)
    produce(kafka.bootstrap, name, [b"2"])
    stop_copy(cluster, NAME, name, "for a test")
    assert equal(cluster, kafka, name, 2).end == 2


def altered(offset: int, **fields: Any) -> Change:
    """Gives the record at an offset other fields."""
    return lambda records: [replace(each, **fields) if each.offset == offset else each for each in records]


def without(offset: int) -> Change:
    return lambda records: [each for each in records if each.offset != offset]


DIFFERENCES: dict[str, tuple[Change, tuple[int, str, str, str]]] = {
    "a value": (
        altered(23, value=b"value 24"),
        (23, "value", "'value 24' (8 bytes)", "'value 23' (8 bytes)"),
    ),
    "an empty value": (altered(20, value=b""), (20, "value", "'' (0 bytes)", "'value 20' (8 bytes)")),
    "no value": (altered(19, value=None), (19, "value", "null", "'value 19' (8 bytes)")),
    "a null key for an empty one": (altered(29, key=None), (29, "key", "null", "'' (0 bytes)")),
    "a time": (
        altered(0, timestamp_us=1_700_000_000_000_001),
        (
            0,
            "timestamp",
            "2023-11-14T22:13:20.000Z (1700000000000001 µs)",
            "2023-11-14T22:13:20.000Z (1700000000000000 µs)",
        ),
    ),
    "headers in another order": (
        altered(30, headers=(("b", None), ("a", b"1"))),
        (30, "headers", "header 1 is 'b': null", "header 1 is 'a': '1' (1 byte)"),
    ),
    "an empty header for a null one": (
        altered(30, headers=(("a", b"1"), ("b", b""))),
        (30, "headers", "header 2 is 'b': '' (0 bytes)", "header 2 is 'b': null"),
    ),
    "no headers": (altered(30, headers=()), (30, "headers", "0 headers", "header 1 is 'a': '1' (1 byte)")),
    "a record that is missing": (
        without(39),
        (39, "record", "no record", "key '' (0 bytes), value 'value 39' (8 bytes)"),
    ),
    "the last one": (
        without(59),
        (59, "record", "no record", "key '' (0 bytes), value 'value 59' (8 bytes)"),
    ),
}


@pytest.fixture(scope="module")
def sent(kafka: Broker) -> str:
    """A topic of 61 records, of which the one at offset 40 was aborted, and 41 is its marker."""
    topic = "verified"
    kafka.create_topic(topic)
    producer = librdkafka_producer(kafka.bootstrap)

    def send(numbers: range) -> None:
        for number in numbers:
            headers: Any = [("a", b"1"), ("b", None)]
            producer.produce(topic, f"value {number}", b"", timestamp=1_700_000_000_000, headers=headers)
        assert producer.flush(WAIT_S) == 0

    send(range(40))
    aborting = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    aborting.init_transactions()
    aborting.begin_transaction()
    aborting.produce(topic, b"aborted")
    assert aborting.flush(WAIT_S) == 0
    aborting.abort_transaction()
    source, place = Source(kafka.bootstrap), TopicPartition(topic, 0)
    wait_until(lambda: source.ranges([place])[place].end == 42, "the marker is there")
    send(range(42, 61))
    return topic


@pytest.mark.parametrize("case", DIFFERENCES)
def test_the_first_difference_is_named(kafka: Broker, cluster: Cluster, sent: str, case: str) -> None:
    change, found = DIFFERENCES[case]
    copied(cluster, kafka, sent, lambda records: altered(60, value=b"")(change(records)))
    (verdict,) = checked(cluster, kafka)
    assert (verdict.difference, verdict.failed, verdict.is_equal) == (found, "", False)
    assert [each.equal for each in verdict.ranges].index(False) == found[0] // WIDTH


def test_a_record_in_excess_is_a_difference(kafka: Broker, cluster: Cluster, sent: str) -> None:
    copied(
        cluster,
        kafka,
        sent,
        lambda records: sorted([*records, Record(b"aborted", offset=40)], key=lambda each: each.offset or 0),
    )
    (verdict,) = checked(cluster, kafka)
    assert verdict.difference == (40, "record", "key null, value 'aborted' (7 bytes)", "no record")


def test_a_source_that_ends_before_its_copy_is_a_difference(
    kafka: Broker, cluster: Cluster, sent: str
) -> None:
    copied(cluster, kafka, sent, ahead=3)
    (verdict,) = checked(cluster, kafka)
    assert verdict.difference == (61, "end", "the copy ends at 64", "it ends at 61")


def test_a_sample_is_some_ranges_that_its_seed_decides(kafka: Broker, cluster: Cluster, sent: str) -> None:
    copied(cluster, kafka, sent, altered(23, value=b"value 24"))
    found: dict[tuple[int, ...], bool] = {}
    for seed in range(8):
        (verdict,) = checked(cluster, kafka, sample=Sample(2, str(seed)))
        starts = tuple(each.start for each in verdict.ranges)
        assert len(starts) == 2
        assert verdict.is_equal == (20 not in starts)
        (again,) = checked(cluster, kafka, sample=Sample(2, str(seed)))
        assert again.ranges == verdict.ranges
        found[starts] = verdict.is_equal
    assert {*found.values()} == {True, False}
    (verdict,) = checked(cluster, kafka, sample=Sample(7, ""))
    assert [each.start for each in verdict.ranges] == [*range(0, 61, 10)]


def test_ranges_begin_at_multiples() -> None:
    assert ranges_of(5, 25, 10) == [(5, 10), (10, 20), (20, 25)]
    assert ranges_of(10, 20, 10) == [(10, 20)]
    assert ranges_of(11, 12, 10) == [(11, 12)]
    assert ranges_of(7, 7, 10) == []


def test_a_topic_that_is_gone_or_re_created_is_not_verified_and_others_are(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    topics = [f"{name}-{each}" for each in ("again", "gone", "there")]
    for topic in topics:
        kafka.create_topic(topic)
        produce(kafka.bootstrap, topic, [b"0"])
    note(cluster, kafka, f"^{name}.*")
    for topic in topics:
        copied(cluster, kafka, topic)
    for topic in topics[:2]:
        kafka.delete_topic(topic)
    kafka.create_topic(topics[0])
    again, gone, there = checked(cluster, kafka)
    assert "deleted and re-created the topic" in again.failed
    assert "says: " in gone.failed
    assert not again.is_equal
    assert (there.is_equal, there.records) == (True, 1)
    with pytest.raises(InvalidArgument, match=f"makes no topic {name!r}"):
        checked(cluster, kafka, name)
