"""ingest/partitioner.py: the partition of records without a key."""

from ingest.partitioner import StickyPartitioner


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
