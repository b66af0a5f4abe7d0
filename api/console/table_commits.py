"""The commits of a partition's table, newest first, as far as its log still has them, and their drawing.

Commits are read a bounded number at a time: a log has 72,000 of an hour with 20 a second. Those that are
older than an hour, and before a checkpoint, are deleted.

They stand on an axis of time, in a row for each operation. Long times without a commit are cut out, and the
cut is marked: else bursts would be one line each.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from log_tables.errors import CorruptLog
from log_tables.layout import (
    TXN_DELETED,
    TXN_HIGH_WATERMARK,
    TXN_LEADER_BROKER,
    TXN_LOG_START,
    TXN_TIERED,
)
from log_tables.partition.reader import PartitionReader
from log_tables.table.commit import Commit, read_commit
from log_tables.table.snapshot import Segment, segment_of

COMMITS_SHOWN = 200
READ_AT_ONCE = 16
READS_MAX = 400
"""Commits that the search for one reads at most: a bisection takes 20, and claims in between some more."""

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


class TableCommit(NamedTuple):
    """One version: when, which operation, by whom, and what it changed. None is not said."""

    version: int
    at_ms: int
    operation: str
    epoch: int | None
    broker: int | None
    url: str
    engine: str
    added: int
    removed: int
    records: int
    size_bytes: int
    first_offset: int | None
    last_offset: int | None
    note: str


class CommitPage(NamedTuple):
    """Commits, newest first. `older` is the next version to go on with; None at the end of the log."""

    commits: Sequence[TableCommit]
    older: int | None
    gone: bool


class FoundCommit(NamedTuple):
    """The commit that appended a record, and the file in which it came."""

    version: int
    at_ms: int
    epoch: int | None
    path: str
    first_offset: int
    last_offset: int


def commit_page(
    partition: PartitionReader, before: int | None = None, count: int = COMMITS_SHOWN
) -> CommitPage:
    """The commits of the newest `count` versions, up to `before` if it is given. Blocking.

    `gone` says that the log of before is deleted. Raises StoreUnavailable, CorruptLog.
    """
    store, newest = partition.table.store, partition.snapshot.version
    last = newest if before is None else min(before, newest)
    versions = range(last, max(-1, last - count), -1)
    with ThreadPoolExecutor(READ_AT_ONCE) as pool:
        read = [*pool.map(lambda version: read_commit(store, partition.directory, version), versions)]
    found = []
    for version, commit in zip(versions, read, strict=True):
        if commit is None:
            break
        found.append(table_commit(version, commit))
    gone = len(found) < len(read)
    older = None if gone or not versions or versions[-1] == 0 else versions[-1] - 1
    return CommitPage(found, older, gone)


def table_commit(version: int, commit: Commit) -> TableCommit:
    """The facts of one commit."""
    info, segments = commit.info, [*_segments(commit)]
    txns = {txn.app_id: txn.version for txn in commit.txns}
    return TableCommit(
        version=version,
        at_ms=info.timestamp,
        operation=info.operation or "unnamed",
        epoch=info.leaderEpoch,
        broker=txns.get(TXN_LEADER_BROKER),
        url=info.leaderUrl or "",
        engine=info.engineInfo,
        added=len(commit.adds),
        removed=len(commit.removes),
        records=sum(segment.records for segment in segments),
        size_bytes=sum(add.size for add in commit.adds),
        first_offset=min((segment.base_offset for segment in segments), default=None),
        last_offset=max((segment.last_offset for segment in segments), default=None),
        note=_note(commit, txns),
    )


def _note(commit: Commit, txns: dict[str, int]) -> str:
    said = []
    if TXN_DELETED in txns:
        said.append("the topic is deleted")
    if TXN_LOG_START in txns:
        said.append(f"log start {txns[TXN_LOG_START]:,}")
    if TXN_TIERED in txns:
        said.append(f"tiered up to {txns[TXN_TIERED]:,}")
    if commit.info.producers:
        said.append(f"{len(commit.info.producers)} idempotent batches")
    return ", ".join(said)


def _segments(commit: Commit) -> Iterator[Segment]:
    for add in commit.adds:
        try:
            yield segment_of(add)
        except CorruptLog:
            continue  # a commit of another tool; fsck says so


def commit_of(partition: PartitionReader, offset: int) -> FoundCommit | None:
    """The commit that appended the record at `offset`; None where the log of that time is gone. Blocking.

    The high watermark grows with each append, so it is found by bisection. Raises StoreUnavailable,
    CorruptLog.
    """
    store, directory = partition.table.store, partition.directory
    low, high, left = 0, partition.snapshot.version, READS_MAX
    best: tuple[int, Commit] | None = None
    while low <= high and left > 0:
        middle = at = (low + high) // 2
        end = None
        commit = None
        while at <= high and end is None and left > 0:
            commit = read_commit(store, directory, at)
            left -= 1
            if commit is None:
                break
            end = next((txn.version for txn in commit.txns if txn.app_id == TXN_HIGH_WATERMARK), None)
            at += 1
        if commit is None:
            low = at + 1  # deleted, with all before
        elif end is None:
            high = middle - 1  # no append from here to the end of what is looked at
        elif end > offset:
            best, high = (at - 1, commit), middle - 1
        else:
            low = at
    return None if best is None else _found(*best, offset)


def _found(version: int, commit: Commit, offset: int) -> FoundCommit | None:
    """The commit, if it is the very one: the log before it may be gone."""
    for segment in _segments(commit):
        if segment.base_offset <= offset <= segment.last_offset:
            info = commit.info
            return FoundCommit(
                version,
                info.timestamp,
                info.leaderEpoch,
                segment.path,
                segment.base_offset,
                segment.last_offset,
            )
    return None


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


def commit_layout(commits: Sequence[TableCommit]) -> CommitLayout:
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
