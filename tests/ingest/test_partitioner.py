"""ingest/partitioner.py: the hash of a key, and the partition of records without one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.partitioner import StickyPartitioner
from log_tables.topic_partition import partition_for_key


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
