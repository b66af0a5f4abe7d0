"""Which segments are merged: neighbours of about one size, so that no record is written again too often."""

from collections.abc import Sequence
from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.merge_plan import merge_debt, runs
from log_tables.limits import MERGE_GROWTH, YOUNG_SEGMENTS_MAX
from log_tables.table.snapshot import Segment
from tests.kit import states

WINDOW_MS, AGE_MS, MOST = 1_000, 10, 1_024
CONFIG = TopicConfig.parse(
    {"segment.ms": f"{WINDOW_MS}", "merge.min.age.ms": f"{AGE_MS}", "segment.bytes": f"{MOST}"}
)


def a_segment(offset: int, size: int, at_ms: int) -> Segment:
    """A segment of one record."""
    return Segment(
        path=f"{offset}",
        size=size,
        base_offset=offset,
        last_offset=offset,
        records=1,
        min_timestamp="",
        max_timestamp="",
        modification_time=at_ms,
        nulls=(0, 0, 0),
        raw_bytes=size,
    )


def log_of(sizes: Sequence[int], times: Sequence[int] | None = None) -> list[Segment]:
    """Segments of these sizes, appended at these times (one every millisecond)."""
    return [
        a_segment(offset, size, at)
        for offset, (size, at) in enumerate(zip(sizes, times or range(len(sizes)), strict=True))
    ]


def merged(segments: Sequence[Segment], now_ms: int = WINDOW_MS - 1) -> list[list[int]]:
    """The sizes of the segments in each run."""
    return [[segment.size for segment in run] for run in runs(segments, CONFIG, now_ms)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], []),
        ([1, 1, 1], []),
        ([1, 1, 1, 1], [[1, 1, 1, 1]]),
        ([1] * 1_030, [[1] * 512, [1] * 512, [1] * 6]),
        # One that is large beside the others parts them.
        ([1, 1, 1, 1, 100, 1, 1, 1, 1], [[1] * 4, [1] * 4]),
        ([100, 1, 1, 1, 1], [[1] * 4]),
        ([1, 1, 1, 1, 100], [[1] * 4]),
        ([100, 20, 5, 1], []),
        ([1, 5, 20, 100], []),
        ([100, 100, 100, 20, 20, 20, 5, 5, 5, 1], []),
        ([100, 100, 100, 20, 20, 20, 5, 5, 5, 5, 20], [[100, 100, 100, 20, 20, 20, 5, 5, 5, 5, 20]]),
        # What is full has no more to come.
        ([MOST, 1, 1, 1, 1, MOST], [[1] * 4]),
        ([MOST, MOST, MOST], []),
        ([5 * MOST, 1, 1, 1, 1], [[1] * 4]),
        ([300, 300, 300], []),
        ([300, 300, 300, 300], [[300, 300, 300]]),
        ([600, 200, 100, 600], []),
        ([600, 200, 200, 600], [[200, 200]]),
        ([400, 200, 200, 600], [[400, 200, 200]]),
    ],
)
def test_what_is_of_about_one_size_is_merged(sizes: list[int], expected: list[list[int]]) -> None:
    assert merged(log_of(sizes, [0] * len(sizes))) == expected


def test_a_run_of_many_files_is_merged_in_parts_that_are_each_worth_it() -> None:
    sizes = [1] * 5 + [20] + [1] * 5
    parts = runs(log_of(sizes, [0] * len(sizes)), CONFIG, WINDOW_MS - 1, files_max=4)
    assert [[segment.size for segment in run] for run in parts] == []
    parts = runs(log_of([1] * 11, [0] * 11), CONFIG, WINDOW_MS - 1, files_max=4)
    assert [len(run) for run in parts] == [4, 4]


def test_what_is_young_is_left_alone() -> None:
    segments = log_of([1] * 8)
    assert merged(segments, 0) == merged(segments, AGE_MS + 2) == []
    assert merged(segments, AGE_MS + 3) == [[1] * 4]
    assert merged(segments, AGE_MS + 7) == [[1] * 8]


def test_no_more_than_some_are_left_alone_for_their_youth() -> None:
    segments = log_of([1] * (YOUNG_SEGMENTS_MAX + 4), [0] * (YOUNG_SEGMENTS_MAX + 4))
    assert merged(segments[1:], 0) == []
    assert merged(segments, 0) == [[1] * 4]


def debt_of(sizes: Sequence[int], now_ms: int, cleaned: int = 0) -> int:
    snapshot = states.a_snapshot(log_of(sizes, [0] * len(sizes)), cleaned=cleaned)
    return merge_debt(snapshot, CONFIG, now_ms)


def test_the_debt_is_the_files_that_merges_would_remove() -> None:
    assert debt_of([], 500) == debt_of([1] * 3, 500) == 0
    assert debt_of([1] * 8, 500) == 7
    assert debt_of([1] * 4 + [100] + [1] * 6, 500) == 3 + 5
    assert debt_of([1] * 8, 500, cleaned=4) == 3 + 3
    assert debt_of([1] * 8, AGE_MS - 1) == 0


def test_a_young_segment_hides_all_that_follow() -> None:
    segments = log_of([1] * 10, [0, 0, 0, 0, 100, 0, 0, 0, 0, 0])
    assert merged(segments, 50) == [[1] * 4]


def test_a_merge_stays_in_its_window() -> None:
    segments = log_of([1] * 10, [*range(WINDOW_MS - 5, WINDOW_MS + 5)])
    assert merged(segments, 5 * WINDOW_MS) == [[1] * 5, [1] * 5]
    uneven = log_of([1] * 8, [WINDOW_MS - 1] * 2 + [WINDOW_MS] * 6)
    assert merged(uneven, 5 * WINDOW_MS) == [[1] * 2, [1] * 6]


sizes_of = st.lists(st.integers(1, 300) | st.sampled_from([1, 2, 500, MOST, 3 * MOST]), max_size=60)
steps_of = st.lists(st.integers(0, 90), min_size=60, max_size=60)


@given(sizes_of, steps_of, st.integers(0, 6_000))
def test_whatever_the_log_is_like(sizes: list[int], steps: list[int], now_ms: int) -> None:
    times = [sum(steps[:end]) for end in range(len(sizes))]
    segments = log_of(sizes, times)
    found = runs(segments, CONFIG, now_ms)
    flat = [segment for run in found for segment in run]
    assert all(a.base_offset < b.base_offset for a, b in pairwise(flat))
    for run in found:
        first = run[0].base_offset
        assert list(run) == segments[first : first + len(run)]
        assert len(run) >= 2
        assert len({segment.modification_time // WINDOW_MS for segment in run}) == 1
        assert run[-1].modification_time + AGE_MS <= now_ms
        assert 2 * max(segment.size for segment in run) <= sum(segment.size for segment in run) <= MOST


LIFE = TopicConfig.parse({"merge.min.age.ms": "0", "segment.bytes": f"{100_000}"})
SMALLEST = 10


@pytest.mark.parametrize(
    "sizes",
    [(SMALLEST,), (SMALLEST, 100, 1_000), (*[SMALLEST] * 6, 50_000)],
    ids=["equal", "of three sizes", "a few large"],
)
@pytest.mark.parametrize("shrink", [1.0, 0.7], ids=["as large", "smaller when merged"])
def test_a_log_that_grows_stays_short_and_is_not_written_too_often(
    sizes: tuple[int, ...], shrink: float
) -> None:
    clock, most = ManualClock(), LIFE.segment_bytes
    levels = log(most / SMALLEST, MERGE_GROWTH)
    segments: list[Segment] = []
    appended, written, rewrites = 0, 0, {"": 0}
    for offset in range(10_000):
        size = sizes[int(len(sizes) * clock.random())]
        segments.append(a_segment(offset, size, offset))
        appended += size
        if offset % 50 < 49:
            continue
        for run in reversed(runs(segments, LIFE, offset)):
            total, path = sum(segment.size for segment in run), f"{run[0].path}+"
            written += total
            rewrites[path] = 1 + max(rewrites.get(segment.path, 0) for segment in run)
            first, last = segments.index(run[0]), segments.index(run[-1])
            made = replace(run[-1], path=path, base_offset=run[0].base_offset, size=int(shrink * total))
            segments[first : last + 1] = [made]
        full = sum(segment.size for segment in segments) / most
        assert len(segments) <= 4 * full + (MERGE_GROWTH - 1) * (levels + 1)
    assert max(rewrites.values()) <= levels + 1
    assert written <= levels * appended
