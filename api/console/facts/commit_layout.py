"""Where the commits of a table stand in their drawing: on an axis of time, in a row for each operation.

Long times without a commit are cut out, and the cut is marked: else bursts would be one line each.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from api.console.facts.table_commits import TableCommit

MARGIN = 1.5
"""Percent of the width that stay free at both ends, so that no mark is cut."""

ROWS_MAX = 12
LEAST, MOST = 6.0, 22.0
"""The height of a bar, in pixels."""

CUT_AT = 30
"""A time without a commit is cut when it is longer than so many usual ones."""

LABELLED = 18.0
"""Percent of the width that the label of a cut needs, in a narrow window."""

_KINDS = {
    "WRITE": "age0",
    "OPTIMIZE": "merged",
    "COMPACT": "compacted",
    "TIER": "tiered",
    "DELETE RECORDS": "deletion",
    "VACUUM": "deletion",
    "CLAIM": "claim",
}
_ORDER = (*_KINDS,)


class CommitMark(NamedTuple):
    """A commit in its row; `height` is by its bytes."""

    x: float
    height: float
    commit: TableCommit


class CommitRow(NamedTuple):
    """The commits of one operation."""

    operation: str
    kind: str
    marks: Sequence[CommitMark]


class TimeGap(NamedTuple):
    """A time that is cut out of the axis."""

    x: float
    seconds: float
    labelled: bool


class CommitLayout(NamedTuple):
    """The drawing. `ticks` are times (milliseconds since 1970) with their places."""

    rows: Sequence[CommitRow]
    breaks: Sequence[TimeGap]
    ticks: Sequence[tuple[float, int, str]]


def layout(commits: Sequence[TableCommit]) -> CommitLayout:
    """The drawing of `commits`. Those that do not say their time are left out."""
    timed = [commit for commit in commits if commit.at_ms > 0]
    if not timed:
        return CommitLayout((), (), ())
    places, breaks = _axis(sorted({commit.at_ms for commit in timed}))
    biggest = max(commit.size_bytes for commit in timed)
    rows: dict[str, list[CommitMark]] = {}
    for commit in reversed(timed):
        share = commit.size_bytes / biggest if biggest else 0.0
        mark = CommitMark(places[commit.at_ms], LEAST + (MOST - LEAST) * share, commit)
        rows.setdefault(commit.operation, []).append(mark)
    found = [CommitRow(name, _KINDS.get(name, "other"), rows[name]) for name in sorted(rows, key=_rank)]
    return CommitLayout(found[:ROWS_MAX], breaks, _ticks(places))


def _axis(times: Sequence[int]) -> tuple[Mapping[int, float], Sequence[TimeGap]]:
    """The places of `times`, in order and each once, and what is cut out between them."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0
    most = CUT_AT * usual
    kept = [min(gap, most) for gap in gaps]
    total, at = sum(kept), 0
    places = {times[0]: 50.0 if not gaps else MARGIN}
    breaks: list[TimeGap] = []
    free = LABELLED
    for index, gap in enumerate(gaps):
        before, at = at, at + kept[index]
        places[times[index + 1]] = _place(at / total)
        if gap > most:
            x = _place((before + at) / 2 / total)
            labelled = x >= free and x <= 100 - LABELLED / 2
            free = x + LABELLED if labelled else free
            breaks.append(TimeGap(x, gap / 1000, labelled))
    return places, breaks


def _place(part: float) -> float:
    return MARGIN + part * (100 - 2 * MARGIN)


def _ticks(places: Mapping[int, float]) -> Sequence[tuple[float, int, str]]:
    first, last = min(places), max(places)
    return [(50.0, first, "middle")] if first == last else [(0.0, first, "start"), (100.0, last, "end")]


def _rank(operation: str) -> tuple[int, str]:
    return (_ORDER.index(operation) if operation in _ORDER else len(_ORDER), operation)
