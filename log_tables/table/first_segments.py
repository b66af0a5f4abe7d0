"""The removal of the first segments of a table, in commits of a bounded size: truncation, and moves away.

A commit that removes thousands of segments would hold up the leader for longer than one of its own does.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from log_tables.counts import counted
from log_tables.errors import begun
from log_tables.layout import TXN_LOG_START
from log_tables.limits import REWRITTEN_FILES_MAX, TIMESTAMP_MIN_US
from log_tables.record import timestamp_text
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table

Due = tuple[Sequence[Segment], Txn]
"""Segments to remove, the first ones of a table, and the txn that says up to where."""


def remove_first(
    table: Table, operation: str, due: Callable[[Snapshot], Due | None], most: int = REWRITTEN_FILES_MAX
) -> tuple[Segment, ...]:
    """Commit what is `due` in the newest snapshot, at most so many segments at once, until that is None.

    Returns the segments that were removed. Raises as `Table.transact` does, and OutcomeUnknown where it fails
    after the first commit.
    """
    removed: list[Segment] = []
    while True:
        done = f"the removal of {counted(len(removed), 'segment')} from {table.directory} is done"
        with begun(done) if removed else nullcontext():
            gone = _remove(table, operation, due, most)
        if gone is None:
            return tuple(removed)
        removed += gone


def _remove(
    table: Table, operation: str, due: Callable[[Snapshot], Due | None], most: int
) -> Sequence[Segment] | None:
    info, now_ms = commit_info(table.clock, operation), table.clock.now_ms()
    last: tuple[Due, int, Commit] | None = None
    seen: dict[str, Segment] = {}

    def build(snapshot: Snapshot) -> Commit | None:
        """One object as long as the same is due, so that an attempt after a lost race costs little."""
        nonlocal last
        found = due(snapshot)
        if found is None:
            return None
        gone, txn = found = _cut(found, most)
        start = snapshot.log_start
        if last is None or last[:2] != (found, start):
            seen.update((item.path, item) for item in gone)
            if txn.app_id == TXN_LOG_START:
                removes = tuple(item.delete(now_ms, start) for item in gone)
            else:
                removes = tuple(item.remove(now_ms, data_change=True) for item in gone)
            following = snapshot.segments[len(gone) : len(gone) + 1]  # what replaces it may have to go, too
            needs = frozenset(item.path for item in following)
            last = found, start, Commit(info, txns=(txn,), removes=removes, needs=needs)
        return last[2]

    made = table.transact(build)
    return None if made is None else [seen[remove.path] for remove in made.removes]


def _cut(found: Due, most: int) -> Due:
    gone, txn = found
    if len(gone) <= most:
        return found
    return gone[:most], Txn(txn.app_id, gone[most - 1].last_offset + 1)


def below(snapshot: Snapshot, offset: int) -> Due:
    """The segments that go when the log start moves up to `offset`, or to the end of the log, and its txn. It
    never moves back.
    """
    gone = snapshot.segments[: bisect_left(snapshot.segments, offset, key=lambda item: item.last_offset)]
    return gone, Txn(TXN_LOG_START, max(snapshot.log_start, min(offset, snapshot.high_watermark)))


def too_old(segments: Sequence[Segment], retention_ms: int | None, now_ms: int) -> int:
    """How many of the first `segments` have no record younger than `retention_ms`; None keeps all."""
    if retention_ms is None:
        return 0
    oldest = timestamp_text(max(TIMESTAMP_MIN_US, (now_ms - retention_ms) * 1_000))
    return next((at for at, item in enumerate(segments) if item.max_timestamp >= oldest), len(segments))


def too_many(segments: Sequence[Segment], retention_bytes: int | None) -> int:
    """How many of the first `segments` are beyond `retention_bytes`; None keeps all."""
    if retention_bytes is None:
        return 0
    rest = sum(segment.size for segment in segments)
    for at, segment in enumerate(segments):
        rest -= segment.size
        if rest < retention_bytes:
            return at
    return len(segments)
