"""Offsets as Kafka's source has them: their JSON, what a trigger takes of them, what each task reads."""

import json

import pytest

from lakelog.spark.source.offsets import BEGIN, OffsetRange, decode, encode, epochs, share_out, split
from log_tables.topic_partition import TopicIdPartition, TopicPartition


def offsets(**ends: int) -> dict[TopicIdPartition, int]:
    """`offsets(t0=3, t1=5)`: of the topic t, by partition."""
    return {
        TopicIdPartition(name[:-1], f"id of {name[:-1]}", int(name[-1])): offset
        for name, offset in ends.items()
    }


def test_a_place_is_kafkas_json_with_the_topics_id() -> None:
    """Kafka: `{"a": {"0": 3}}`, sorted, so that equal places are equal texts."""
    by_partition = offsets(b0=7, a1=5, a0=3)
    encoded = encode(by_partition)
    assert json.dumps(encoded) == '{"a": {"id": "id of a", "0": 3, "1": 5}, "b": {"id": "id of b", "0": 7}}'
    assert decode(json.loads(json.dumps(encoded))) == by_partition
    assert json.dumps(encode(dict(reversed(by_partition.items())))) == json.dumps(encoded)
    assert decode(encode({})) == {}


def test_a_place_says_in_which_log_epoch_it_was_taken() -> None:
    """Unless in the first: then it has no more than the id of the topic."""
    encoded = encode(offsets(a0=3), 29_740_000, offsets(a0=1))
    begin = {"a": {"id": "id of a", "epoch": 29_740_000, "0": 1}}
    assert encoded == {"a": {"id": "id of a", "epoch": 29_740_000, "0": 3}, BEGIN: begin}
    assert (decode(encoded), epochs(encoded)) == (offsets(a0=3), {"a": 29_740_000})
    assert epochs(encode(offsets(a0=3))) == {"a": 0}


@pytest.mark.parametrize(
    ("limit", "begins", "ends", "shared"),
    [
        (10, {"t0": 0, "t1": 0}, {"t0": 30, "t1": 70}, {"t0": 3, "t1": 7}),
        (10, {"t0": 5, "t1": 20}, {"t0": 35, "t1": 90}, {"t0": 8, "t1": 27}),
        (10, {"t0": 0, "t1": 0}, {"t0": 1, "t1": 999}, {"t0": 1, "t1": 9}),  # none is starved
        (2, {"t0": 0, "t1": 0, "t2": 0}, {"t0": 9, "t1": 9, "t2": 9}, {"t0": 1, "t1": 1, "t2": 1}),
        (10, {"t0": 0, "t1": 4}, {"t0": 20, "t1": 4}, {"t0": 10, "t1": 4}),  # nothing new in t1
        (10, {"t0": 0, "t1": 9}, {"t0": 20, "t1": 4}, {"t0": 10, "t1": 4}),  # t1 has lost its end
        (100, {"t0": 0, "t1": 0}, {"t0": 30, "t1": 70}, {"t0": 30, "t1": 70}),
        (1, {"t0": 3}, {"t0": 3}, {"t0": 3}),
        (2**62, {"t0": 0, "t1": 0}, {"t0": 2**62, "t1": 2**62}, {"t0": 2**61, "t1": 2**61}),
    ],
)
def test_a_limit_is_shared_out_in_proportion_to_the_backlogs(
    limit: int, begins: dict[str, int], ends: dict[str, int], shared: dict[str, int]
) -> None:
    """Kafka: limit × backlog / total, rounded down, but up below 1; never beyond the end."""
    assert share_out(limit, offsets(**begins), offsets(**ends)) == offsets(**shared)


def test_ranges_are_one_task_each_by_default() -> None:
    """Kafka: one task for each partition that has something; empty and inverted ranges are dropped."""
    ranges = [
        OffsetRange(TopicPartition("t", 0), 5, 9),
        OffsetRange(TopicPartition("t", 1), 3, 3),
        OffsetRange(TopicPartition("t", 2), 4, 2),
        OffsetRange(TopicPartition("u", 0), 0, 1),
    ]
    assert split(ranges, None, None) == [ranges[0], ranges[3]]
    assert split(ranges, 1, None) == [ranges[0], ranges[3]]
    assert split([], 5, 5) == []


def sizes(parts: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(part.partition.partition, part.size) for part in parts]


def test_min_partitions_cuts_the_longest_ranges() -> None:
    """Kafka: about minPartitions tasks, cut in proportion; the small ranges stay whole."""
    even = [OffsetRange(TopicPartition("t", 0), 0, 100), OffsetRange(TopicPartition("t", 1), 50, 150)]
    assert sizes(split(even, 4, None)) == [(0, 50), (0, 50), (1, 50), (1, 50)]
    uneven = [OffsetRange(TopicPartition("t", 0), 0, 3), OffsetRange(TopicPartition("t", 1), 0, 300)]
    assert sizes(split(uneven, 4, None)) == [(0, 3), (1, 100), (1, 100), (1, 100)]
    # Never more tasks than offsets.
    assert sizes(split([OffsetRange(TopicPartition("t", 0), 7, 9)], 10, None)) == [(0, 1), (0, 1)]


def test_max_records_per_partition_bounds_every_task() -> None:
    """Kafka: no task reads more than that; with minPartitions both hold."""
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 10), OffsetRange(TopicPartition("t", 1), 100, 103)]
    assert sizes(split(ranges, None, 4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]
    both = split(ranges, 6, 4)
    assert len(both) == 6
    assert max(part.size for part in both) <= 4


def test_parts_follow_one_another_and_cover_their_range() -> None:
    for least, most in ((7, None), (None, 7), (13, 5), (1000, 1)):
        parts = split([OffsetRange(TopicPartition("t", 0), 17, 117)], least, most)
        assert [part.start for part in parts] == [17, *(part.end for part in parts[:-1])]
        assert parts[-1].end == 117
        assert all(part.size > 0 for part in parts)
