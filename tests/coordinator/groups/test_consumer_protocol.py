"""The bytes of consumers: as kafka-python writes them, and whatever else somebody may send."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from coordinator.groups.classic.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from log_tables.topic_partition import TopicPartition

names = st.text(min_size=1, max_size=20)
partitions = st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=20)


@given(st.frozensets(names, max_size=20))
def test_a_subscription_is_read_as_it_was_written(topics: frozenset[str]) -> None:
    assert subscribed_topics(encode_subscription(topics)) == topics


@given(partitions)
def test_an_assignment_is_read_as_it_was_written(owned: frozenset[TopicPartition]) -> None:
    assert assigned_partitions(encode_assignment(owned)) == owned


def test_later_versions_have_more_at_the_end() -> None:
    version_3 = b"\x00\x03" + encode_subscription(["t"])[2:] + b"\x00\x00\x00\x00\xff\xff\xff\xff\x00\x01r"
    assert subscribed_topics(version_3) == frozenset({"t"})
    assert assigned_partitions(b"") == frozenset()


@given(st.binary(max_size=200))
def test_anything_else_is_not_known(data: bytes) -> None:
    for found in (subscribed_topics(data), assigned_partitions(data)):
        assert found is None or len(found) <= len(data)


@given(partitions, st.data())
def test_bytes_that_were_cut_off_are_not_known(owned: frozenset[TopicPartition], data: st.DataObject) -> None:
    whole = encode_assignment(owned)[:-4]
    cut = data.draw(st.integers(1, len(whole) - 1))
    assert assigned_partitions(whole[:cut]) is None


def test_counts_beyond_the_end_and_negative_partitions_are_not_known() -> None:
    for count in (2**31 - 1, -1, -(2**31)):
        assert subscribed_topics(struct.pack(">hi", 0, count)) is None
        assert assigned_partitions(struct.pack(">hi", 0, count)) is None
    negative = struct.pack(">hi", 0, 1) + b"\x00\x01t" + struct.pack(">ii", 1, -1)
    assert assigned_partitions(negative) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, 2) + b"\xff\xff") is None
