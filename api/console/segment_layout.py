"""Where the segments of a partition stand in their drawing: in order of offset, as wide as they have bytes.

Places are percent of the width, so the drawing fits every window without a script. Neighbours that would be
narrower than a part in MIN_PARTS are one block: the drawing has a bounded size, however many there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from log_tables.layout import segment_base_offset
from log_tables.table.snapshot import Segment, Snapshot

MIN_PARTS = 300
LANES_MAX = 8
"""Lanes of labels below the drawing; marks beyond have none."""

_CHAR = 1.85
"""The width of a character of a label in percent, in a narrow window."""

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000

KINDS = {
    "age0": "under a minute old",
    "age1": "under an hour old",
    "age2": "under a day old",
    "age3": "older than a day",
    "merged": "merged lately",
    "compacted": "compacted by key",
    "tiered": "in the remote root",
}
"""The colours of the drawing, and their meaning."""


class NotedOffset(NamedTuple):
    """An offset that is to be marked; `kind` is one of the classes of the style."""

    offset: int
    label: str
    kind: str = ""


class PlannedRange(NamedTuple):
    """Offsets that something would change."""

    first: int
    last: int
    label: str
    kind: str = ""


class Block(NamedTuple):
    """Segments that are drawn together; most of them one."""

    x: float
    width: float
    kind: str
    first: int
    last: int
    segments: int
    records: int
    size: int
    selected: bool


class Mark(NamedTuple):
    """A line with a label in a lane below; lane -1 for a line without one."""

    x: float
    label: str
    kind: str
    lane: int
    anchor: str


class RangeMark(NamedTuple):
    """A span below the blocks."""

    x: float
    width: float
    label: str
    kind: str
    row: int


class SegmentLayout(NamedTuple):
    """The whole drawing. `ticks` are offsets with their places."""

    blocks: Sequence[Block]
    marks: Sequence[Mark]
    brackets: Sequence[RangeMark]
    ticks: Sequence[tuple[float, int, str]]
    lanes: int
    rows: int
    grouped: bool


def kinds_of(snapshot: Snapshot, now_ms: int) -> Mapping[int, str]:
    """The kind of each segment of a table, by its first offset.

    A segment was merged if the table still remembers files that began within its offsets.
    """
    gone = (segment_base_offset(path) for path in snapshot.tombstones)
    bases = sorted(base for base in gone if base is not None)
    return {each.base_offset: _kind(each, snapshot.cleaned, bases, now_ms) for each in snapshot.segments}


def _kind(segment: Segment, cleaned: int, gone: Sequence[int], now_ms: int) -> str:
    if segment.remote:
        return "tiered"
    if segment.last_offset < cleaned:
        return "compacted"
    at = bisect_left(gone, segment.base_offset)
    if at < len(gone) and gone[at] <= segment.last_offset:
        return "merged"
    age = now_ms - segment.modification_time
    return f"age{sum(age >= step for step in (_MINUTE_MS, _HOUR_MS, _DAY_MS))}"


def layout(
    segments: Sequence[Segment],
    kinds: Mapping[int, str],
    points: Sequence[NotedOffset] = (),
    spans: Sequence[PlannedRange] = (),
    selected: int | None = None,
) -> SegmentLayout:
    """The drawing of `segments`, neighbours in order; `selected` is the first offset of one of them."""
    total = sum(segment.size for segment in segments)
    if not segments or not total:
        return SegmentLayout((), (), (), (), 0, 0, False)
    edges = [100 * size / total for size in accumulate((item.size for item in segments), initial=0)]
    scale = _Positions(segments, edges)
    blocks = _blocks(segments, kinds, edges, selected)
    marks, lanes = _marks(points, scale)
    brackets, rows = _brackets(spans, scale)
    grouped = any(block.segments > 1 for block in blocks)
    return SegmentLayout(blocks, marks, brackets, _ticks(scale), lanes, rows, grouped)


class _Positions:
    """Places of offsets. An offset of no segment is at the next one."""

    def __init__(self, segments: Sequence[Segment], edges: Sequence[float]) -> None:
        self._segments, self._edges = segments, edges
        self.first, self.end = segments[0].base_offset, segments[-1].last_offset + 1

    def place(self, offset: int) -> float:
        index = bisect_right(self._segments, offset, key=lambda item: item.base_offset) - 1
        if index < 0:
            return 0.0
        item = self._segments[index]
        part = min(1.0, (offset - item.base_offset) / (item.last_offset - item.base_offset + 1))
        return self._edges[index] + part * (self._edges[index + 1] - self._edges[index])

    def offset(self, place: float) -> int:
        """The offset of the segment at a place, about there."""
        index = min(max(bisect_right(self._edges, place) - 1, 0), len(self._segments) - 1)
        item, begin = self._segments[index], self._edges[index]
        width = self._edges[index + 1] - begin
        part = (place - begin) / width if width else 0.0
        return item.base_offset + round(part * (item.last_offset - item.base_offset))


def _blocks(
    segments: Sequence[Segment], kinds: Mapping[int, str], edges: Sequence[float], selected: int | None
) -> list[Block]:
    least = 100 / MIN_PARTS
    found: list[Block] = []
    begin = 0
    for index in range(len(segments)):
        wide = edges[index + 1] - edges[index] >= least
        if wide and begin < index:
            found.append(_block(segments, kinds, edges, (begin, index), selected))
            begin = index
        if wide or edges[index + 1] - edges[begin] >= least:
            found.append(_block(segments, kinds, edges, (begin, index + 1), selected))
            begin = index + 1
    if begin < len(segments):
        found.append(_block(segments, kinds, edges, (begin, len(segments)), selected))
    return found


def _block(
    segments: Sequence[Segment],
    kinds: Mapping[int, str],
    edges: Sequence[float],
    part: tuple[int, int],
    selected: int | None,
) -> Block:
    items = segments[part[0] : part[1]]
    sizes: dict[str, int] = {}
    for item in items:
        kind = "tiered" if item.remote else kinds.get(item.base_offset, "age3")
        sizes[kind] = sizes.get(kind, 0) + item.size
    first, last = items[0].base_offset, items[-1].last_offset
    return Block(
        x=edges[part[0]],
        width=edges[part[1]] - edges[part[0]],
        kind=max(sizes, key=lambda kind: sizes[kind]),
        first=first,
        last=last,
        segments=len(items),
        records=sum(item.records for item in items),
        size=sum(item.size for item in items),
        selected=selected is not None and first <= selected <= last,
    )


def _marks(points: Sequence[NotedOffset], scale: _Positions) -> tuple[list[Mark], int]:
    """The marks of the points that are in the drawing, and how many lanes their labels take."""
    labels: list[_MarkText] = []
    found: list[Mark] = []
    for point in sorted(points, key=lambda point: -point.offset):
        if not scale.first <= point.offset <= scale.end:
            continue
        x, width = scale.place(point.offset), len(point.label) * _CHAR + 1
        anchor = "start" if x + width <= 100 else "end"
        begin = x if anchor == "start" else max(0.0, x - width)
        label = _MarkText(x, begin, begin + width)
        lane = next((lane for lane in range(LANES_MAX) if label.fits(lane, labels)), -1)
        if lane >= 0:
            labels.append(label._replace(lane=lane))
        found.append(Mark(x, point.label, point.kind, lane, anchor))
    return found, max((label.lane + 1 for label in labels), default=0)


class _MarkText(NamedTuple):
    """The space that a label takes, and the place of the line that leads to it."""

    x: float
    begin: float
    end: float
    lane: int = -1

    def fits(self, lane: int, others: Sequence["_MarkText"]) -> bool:
        """Whether it is free there: no label next to it, and no line through a label."""
        for other in others:
            over = other.begin < self.end and self.begin < other.end
            crossed = other.lane > lane and self.begin < other.x < self.end
            crosses = other.lane < lane and other.begin < self.x < other.end
            if (other.lane == lane and over) or crossed or crosses:
                return False
        return True


def _brackets(spans: Sequence[PlannedRange], scale: _Positions) -> tuple[list[RangeMark], int]:
    """The spans that are in the drawing, cut to it; those that overlap are in rows of their own."""
    ends: list[int] = []
    found: list[RangeMark] = []
    for span in sorted(spans, key=lambda span: (span.first, span.last)):
        if span.last < scale.first or span.first >= scale.end:
            continue
        x, end = scale.place(span.first), scale.place(span.last + 1)
        row = next((row for row, last in enumerate(ends) if last < span.first), len(ends))
        if row < LANES_MAX:
            ends[row : row + 1] = [span.last]
            found.append(RangeMark(x, end - x, span.label, span.kind, row))
    return found, len(ends)


def _ticks(scale: _Positions) -> list[tuple[float, int, str]]:
    return [
        (0.0, scale.first, "start"),
        (50.0, scale.offset(50.0), "middle"),
        (100.0, scale.end - 1, "end"),
    ]
