"""The drawing of a partition: where segments, marks and plans stand, and the SVG that comes of it."""

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api.console.page import fragment
from api.console.segment_layout import (
    LANES_MAX,
    MIN_PARTS,
    NotedOffset,
    PlannedRange,
    SegmentLayout,
    kinds_of,
    layout,
)
from log_tables.layout import segment_name
from log_tables.table.commit import Metadata, Protocol, Remove, Txn
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns

NOW_MS = 1_000_000_000_000
HERE = "/console/topics/t/partitions/0"
HOSTILE = '<script>alert("1")</script>\u202e\x00 & more'


def segments(*sizes: int, records: int = 10, age_ms: int = 0) -> list[Segment]:
    """Neighbours of so many bytes, and of ten offsets each."""
    return [
        Segment(
            path=segment_name(index * records, "00000000"),
            size=size,
            base_offset=index * records,
            last_offset=(index + 1) * records - 1,
            records=records,
            min_timestamp="",
            max_timestamp="",
            modification_time=NOW_MS - age_ms,
            nulls=(0, 0, 0),
            raw_bytes=0,
        )
        for index, size in enumerate(sizes)
    ]


def drawn(found: SegmentLayout) -> ET.Element:
    """The SVG of a drawing, which is XML."""
    return ET.fromstring(fragment("segments.html", {"drawing": found, "here": HERE}))


def test_a_segment_is_as_wide_as_it_has_bytes() -> None:
    found = layout(segments(100, 300, 600), {})
    assert [(block.x, block.width) for block in found.blocks] == [(0, 10), (10, 30), (40, 60)]
    assert [(block.first, block.last) for block in found.blocks] == [(0, 9), (10, 19), (20, 29)]
    assert not found.grouped


def test_neighbours_that_are_too_narrow_are_drawn_as_one() -> None:
    found = layout(segments(*[1] * 10_000), {})
    assert len(found.blocks) <= MIN_PARTS
    assert found.grouped
    assert sum(block.segments for block in found.blocks) == 10_000
    assert sum(block.records for block in found.blocks) == 100_000
    assert all(block.segments > 1 for block in found.blocks)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300))
def test_all_of_the_log_is_drawn_once_within_bounds(sizes: list[int]) -> None:
    found = layout(segments(*sizes), {})
    assert len(found.blocks) <= 2 * MIN_PARTS + 1
    assert sum(block.segments for block in found.blocks) == len(sizes)
    assert sum(block.size for block in found.blocks) == sum(sizes)
    assert sum(block.width for block in found.blocks) == pytest.approx(100)
    ends = [(block.first, block.last) for block in found.blocks]
    assert ends[0][0] == 0
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(ends))


def test_nothing_is_drawn_of_nothing() -> None:
    assert layout([], {}, [NotedOffset(0, "log start 0")]).blocks == ()


def test_an_offset_is_marked_within_its_segment() -> None:
    points = [NotedOffset(offset, str(offset)) for offset in (0, 5, 10, 20)]
    marks = layout(segments(100, 100), {}, points).marks
    assert sorted((int(mark.label), mark.x) for mark in marks) == [(0, 0), (5, 25), (10, 50), (20, 100)]


def test_an_offset_that_is_not_in_the_drawing_is_not_marked() -> None:
    part = segments(100, 100, 100)[1:2]
    points = [NotedOffset(offset, "x") for offset in (0, 9, 15, 25)]
    assert [mark.x for mark in layout(part, {}, points).marks] == [50]


def test_labels_do_not_overlap_and_those_beyond_the_lanes_are_left_out() -> None:
    points = [NotedOffset(5, f"group {number}") for number in range(LANES_MAX + 5)]
    found = layout(segments(100), {}, points)
    lanes = [mark.lane for mark in found.marks]
    assert sorted(lanes) == [-1] * 5 + [*range(LANES_MAX)]
    assert found.lanes == LANES_MAX
    assert {mark.anchor for mark in layout(segments(100), {}, [NotedOffset(9, "long label")]).marks} == {
        "end"
    }


def test_a_plan_is_cut_to_the_drawing_and_what_overlaps_has_rows_of_its_own() -> None:
    plans = [PlannedRange(0, 14, "merge"), PlannedRange(10, 19, "move"), PlannedRange(90, 99, "elsewhere")]
    found = layout(segments(100, 100, 100)[1:], {}, spans=plans)
    assert [(each.label, each.x, each.row) for each in found.brackets] == [("merge", 0, 0), ("move", 0, 1)]
    assert [each.width for each in found.brackets] == [25, 50]


def test_colours_are_by_age_and_by_what_made_a_segment() -> None:
    made = segments(*[1] * 5)
    ages = (0, 61_000, 3_700_000, 90_000_000, 90_000_000)
    aged = [replace(item, modification_time=NOW_MS - age) for item, age in zip(made, ages, strict=True)]
    gone = segment_name(33, "11111111")
    table = Snapshot(
        1,
        Protocol(1, 2),
        Metadata("", ""),
        tuple(aged),
        tombstones=Tombstones([Remove(gone, False, NOW_MS, 1)]),
    )
    assert [*kinds_of(table, NOW_MS).values()] == ["age0", "age1", "age2", "merged", "age3"]
    cleaned = Snapshot(1, table.protocol, table.metadata, table.segments, Txns([Txn("lakelog.cleaned", 20)]))
    assert [*kinds_of(cleaned, NOW_MS).values()] == ["compacted", "compacted", "age2", "age3", "age3"]


def test_the_drawing_says_all_in_words_and_links_to_the_segments() -> None:
    found = drawn(layout(segments(10_000, *[1] * 9, 10_000), {}, [NotedOffset(0, "log start 0")], selected=0))
    links = found.findall("a")
    assert links[0].get("href") == f"{HERE}?segment=0#segment"
    assert links[1].get("href") == f"{HERE}?from=10&to=99"
    assert "offsets 0 to 9, 10 records, 9.8 KiB" in "".join(links[0].itertext())
    assert "9 segments, offsets 10 to 99, 90 records, 9 B" in "".join(links[1].itertext())
    assert "selected" in links[0][0].get("class", "")
    assert "log start 0" in "".join(found.itertext())


def test_hostile_names_stay_text() -> None:
    points, plans = [NotedOffset(3, HOSTILE, "group")], [PlannedRange(0, 9, HOSTILE, "retention")]
    text = fragment("segments.html", {"drawing": layout(segments(9), {}, points, plans), "here": HERE})
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "\\u202e\\u0000 & more" in "".join(ET.fromstring(text).itertext())
    assert "style=" not in text


def test_the_drawing_of_ten_thousand_segments_is_small() -> None:
    text = fragment("segments.html", {"drawing": layout(segments(*[7] * 10_000), {}), "here": HERE})
    assert len(ET.fromstring(text).findall("a")) <= MIN_PARTS
    assert len(text) < 150_000
