"""ingest/partitioner.py: the partition that is named, else the key's, else the sticky one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.partitioner import StickyPartitioner, assign
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_admin import create_topic
from log_tables.errors import InvalidRecord
from log_tables.store.store import open_store
from log_tables.topic_partition import partition_for_key


@pytest.fixture(scope="module")
def three() -> Topic:
    """A topic of three partitions."""
    return create_topic(Cluster.open(open_store("memory://"), ManualClock()), "t", 3)


def test_the_named_partition_wins_then_the_key_then_the_sticky_one(three: Topic) -> None:
    key = b"N14228"
    (by_key,) = assign(three, [key], [None], sticky=1)
    assert by_key == partition_for_key(key, 3)
    other = (by_key + 1) % 3
    assert assign(three, [key, None, None, key], [other, 0, None, None], sticky=2) == [other, 0, 2, by_key]


@pytest.mark.parametrize("wrong", [-1, 3, 2**40])
def test_a_partition_that_is_not_there_is_refused_with_the_place_of_its_record(
    three: Topic, wrong: int
) -> None:
    with pytest.raises(InvalidRecord, match=f"record 1: topic 't' has no partition {wrong}; use 0 to 2"):
        assign(three, [None, None], [0, wrong], sticky=0)


@pytest.mark.parametrize(
    ("key", "hashed"),
    # murmur3's published values; Kafka's own clients use murmur2.
    [(b"", 0), (b"hello", 613_153_351), (b"hello, world", 345_750_399)],
)
def test_the_hash_of_a_key_is_murmur3_without_its_sign(key: bytes, hashed: int) -> None:
    assert partition_for_key(key, 2**31) == hashed


@given(st.binary(max_size=20), st.integers(1, 10_000))
def test_a_key_always_has_a_partition_of_the_topic(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count


def test_the_sticky_partition_moves_on_when_its_batch_is_sealed() -> None:
    sticky = StickyPartitioner()
    seen = []
    for _ in range(4):
        seen.append(sticky.partition(3))
        sticky.sealed(seen[-1], 3, lambda _: False)
    assert seen == [0, 1, 2, 0]


def test_the_batch_of_another_partition_moves_nothing() -> None:
    sticky = StickyPartitioner()
    sticky.sealed(2, 3, lambda _: False)
    assert sticky.partition(3) == 0


def test_a_partition_whose_commit_hangs_is_passed_over() -> None:
    sticky = StickyPartitioner()
    sticky.sealed(0, 3, lambda index: index == 1)
    assert sticky.partition(3) == 2
    sticky.sealed(2, 3, lambda _: True)
    assert sticky.partition(3) == 0
