"""The invariants of a log, each a named, pure predicate, which every commit, the tests and fsck check.

Each returns None when it holds, or a sentence that says how it is violated. `followed` judges the commits of
other processes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum

from log_tables.columns.declaration import declaration_of_schema
from log_tables.errors import CorruptLog, ForeignCommit
from log_tables.layout import TXN_HIGH_WATERMARK, TXN_LEADER, TXN_LOG_START, TXN_MIRRORED
from log_tables.record import delta_schema
from log_tables.table.commit import RESTORE, VACUUM, Add, Commit, Remove, Txn
from log_tables.table.log_epochs import LOG_EPOCH_MAX, LogEpochs
from log_tables.table.snapshot import Segment, Snapshot, column_runs, segment_of

Violation = str | None
FOREIGN = "it was made by another tool"
"""The reason why a commit that is not ours may not stay."""


class CommitKind(Enum):
    """The effect of a commit on the log."""

    APPEND = "append"
    MIRROR = "mirror"
    CLAIM = "claim"
    TIER = "tier"
    RESTORE = "restore"
    MAINTENANCE = "maintenance"


def appends_are_contiguous(before: Snapshot, commit: Commit, after: Snapshot) -> Violation:
    """An append begins at the high watermark, holds every offset from there on, and moves it to its end."""
    if len(commit.adds) != 1 or commit.removes:
        return f"an append has {len(commit.adds)} adds and {len(commit.removes)} removes, not exactly one add"
    path = commit.adds[0].path
    segment = next((segment for segment in reversed(after.segments) if segment.path == path), None)
    if segment is None:
        return f"an append adds {path}, which is not in the table after it"
    if segment.base_offset != before.high_watermark:
        return (
            f"an append begins at offset {segment.base_offset}, not at the high watermark "
            f"{before.high_watermark}"
        )
    if not segment.dense:
        return (
            f"an append of {segment.records} records spans offsets "
            f"{segment.base_offset}-{segment.last_offset}"
        )
    if _txn(commit, TXN_HIGH_WATERMARK) != segment.last_offset + 1:
        return (
            f"an append up to offset {segment.last_offset} says the high watermark "
            f"{_txn(commit, TXN_HIGH_WATERMARK)}"
        )
    return None


def mirrors_follow_the_high_watermark(before: Snapshot, commit: Commit) -> Violation:
    """A copy of another log adds one segment or none, at or above the high watermark. That moves to where the
    other log was read, at or behind the last record.
    """
    if len(commit.adds) > 1 or commit.removes:
        return f"a mirror has {len(commit.adds)} adds and {len(commit.removes)} removes, not at most one add"
    end, mirrored = _txn(commit, TXN_HIGH_WATERMARK), _txn(commit, TXN_MIRRORED)
    if end != mirrored:
        return f"a mirror up to offset {mirrored} says the high watermark {end}"
    for segment in map(segment_of, commit.adds):
        if segment.base_offset < before.high_watermark:
            return (
                f"a mirror begins at offset {segment.base_offset}, below the high watermark "
                f"{before.high_watermark}"
            )
    return None


def tiers_follow_the_high_watermark(before: Snapshot, commit: Commit) -> Violation:
    """A move into a remote table puts segments behind what is there; its end is the new high watermark.

    Only the remote table is checked: the process that commits checks that all records in between were
    deleted.
    """
    if not commit.adds or commit.removes:
        return f"a move has {len(commit.adds)} adds and {len(commit.removes)} removes, not adds alone"
    first, last = segment_of(commit.adds[0]), segment_of(commit.adds[-1])
    if first.base_offset < before.high_watermark:
        return (
            f"a move begins at offset {first.base_offset}, below the high watermark {before.high_watermark}"
        )
    if _txn(commit, TXN_HIGH_WATERMARK) != last.last_offset + 1:
        return (
            f"a move up to offset {last.last_offset} says the high watermark "
            f"{_txn(commit, TXN_HIGH_WATERMARK)}"
        )
    return None


def restores_bring_back_what_was(before: Snapshot, commit: Commit, after: Snapshot) -> Violation:
    """A restore adds segments below the log start, which moves back to them: it leaves no gap."""
    start = _txn(commit, TXN_LOG_START)
    if commit.removes or start is None or not 0 <= start < before.log_start:
        return f"a restore moves the log start from {before.log_start} to {start}"
    for segment in map(segment_of, commit.adds):
        if not (segment.base_offset < before.log_start and start <= segment.last_offset):
            return f"a restore adds {segment.path}, which is not below the log start {before.log_start}"
    if after.whole_from < before.log_start:
        return next(gaps(after, after.whole_from, before.log_start), None)
    return None


def high_watermark_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    if after.high_watermark < before.high_watermark:
        return f"the high watermark moved back from {before.high_watermark} to {after.high_watermark}"
    return None


def log_start_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    if after.log_start < before.log_start:
        return f"the log start moved back from {before.log_start} to {after.log_start}"
    return None


def cleaned_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    """Compaction by key never moves back, and is at most at the high watermark."""
    if after.cleaned < before.cleaned:
        return f"compaction by key moved back from offset {before.cleaned} to {after.cleaned}"
    if after.cleaned > after.high_watermark:
        return f"compaction by key is at {after.cleaned}, above the high watermark {after.high_watermark}"
    return None


def mirrored_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    """The copy of another log never moves back, and ends at the high watermark at most."""
    if after.mirrored < before.mirrored:
        return f"the copy of another log moved back from offset {before.mirrored} to {after.mirrored}"
    if after.mirrored > after.high_watermark:
        return (
            f"the copy of another log is at {after.mirrored}, above the high watermark {after.high_watermark}"
        )
    return None


def tiered_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    if after.tiered < before.tiered:
        return f"the border to the remote tier moved back from {before.tiered} to {after.tiered}"
    return None


def leader_epoch_never_moves_back(before: Snapshot, after: Snapshot) -> Violation:
    if after.leader_epoch < before.leader_epoch:
        return f"the leader epoch moved back from {before.leader_epoch} to {after.leader_epoch}"
    return None


def log_epochs_begin_at_the_end(before: Snapshot, commit: Commit) -> Violation:
    """A claim notes at most one log epoch, a newer one, which begins at the high watermark."""
    noted = LogEpochs.of(commit.txns)[1:]
    if len(noted) > 1:
        return f"a claim notes {len(noted)} log epochs"
    for epoch in noted:
        newest = before.log_epochs.newest
        if not newest < epoch.number <= LOG_EPOCH_MAX:
            return f"the log epoch {epoch.number} follows {newest}"
        if epoch.start != before.high_watermark:
            return (
                f"the log epoch {epoch.number} begins at offset {epoch.start}, not at the high watermark "
                f"{before.high_watermark}"
            )
    return None


def nothing_follows_a_deletion(before: Snapshot, after: Snapshot) -> Violation:
    """After the claim of a deletion comes none of ours but one that brings the topic back, or deletes it once
    more.
    """
    if before.deleted and after.deletions == before.deletions:
        return "the topic was deleted before, and nothing is committed after that until it is brought back"
    if after.deletions < before.deletions:
        return f"the number of deletions moved back from {before.deletions} to {after.deletions}"
    return None


def segments_are_ordered(after: Snapshot) -> Violation:
    """Segments do not overlap, end below the high watermark, and count no more records than they span
    offsets.
    """
    end = 0
    for segment in after.segments:
        if segment.base_offset < end:
            return (
                f"segment {segment.path} begins at {segment.base_offset}, inside the one before that ends "
                f"at {end}"
            )
        if segment.records > segment.last_offset - segment.base_offset + 1 or segment.records < 1:
            return f"segment {segment.path} counts {segment.records} records in its offsets"
        end = segment.last_offset + 1
    if end > after.high_watermark:
        return f"the last segment ends at {end}, above the high watermark {after.high_watermark}"
    return None


def segments_begin_at_the_border(after: Snapshot) -> Violation:
    """Offsets below the border are in the remote tier alone, and the border is at most at the high
    watermark.
    """
    if after.tiered > after.high_watermark:
        return f"the remote tier ends at {after.tiered}, above the high watermark {after.high_watermark}"
    if after.segments and after.segments[0].base_offset < after.tiered:
        return (
            f"segment {after.segments[0].path} begins at {after.segments[0].base_offset}, below the border "
            f"{after.tiered} to the remote tier"
        )
    return None


def modification_time_is_monotone(after: Snapshot) -> Violation:
    """`modificationTime` grows with the base offset: Delta's streaming source orders its first read by it."""
    previous: Segment | None = None
    for segment in after.segments:
        if previous is not None and segment.modification_time < previous.modification_time:
            return f"segment {segment.path} is older than {previous.path}, which comes before it"
        previous = segment
    return None


def rewrite_keeps_records(before: Snapshot, commit: Commit, after: Snapshot) -> Violation:
    """Maintenance leaves as many records as it removes, with the same declared columns; fewer, or others,
    only when it says `dataChange: true`.
    """
    if not (commit.adds or commit.removes):
        return None
    gone, made = _named(before, commit.removes), _named(after, commit.adds)
    lost, left = (sum(segment.records for segment in side) for side in (gone, made))
    if left > lost or (left < lost and not commit.changes_data()):
        return f"a rewrite of {lost} records leaves {left}"
    if not commit.changes_data() and column_runs(gone) != column_runs(made):
        return f"a rewrite of {lost} records changes their declared columns, and says that it does not"
    return None


def _named(snapshot: Snapshot, actions: Sequence[Add | Remove]) -> list[Segment]:
    """The segments of `snapshot`, in order, that `actions` name."""
    paths = {action.path for action in actions}
    return [segment for segment in snapshot.segments if segment.path in paths]


def adds_lie_within_removes(before: Snapshot, commit: Commit, after: Snapshot) -> Violation:
    """Maintenance adds segments only where it removes some, and removes only segments of the table."""
    if not (commit.adds or commit.removes):
        return None
    gone = _named(before, commit.removes)
    if len(gone) < len(commit.removes):
        known = {segment.path for segment in gone}
        missing = [remove.path for remove in commit.removes if remove.path not in known]
        if missing:
            return f"it removes {missing[0]}, which is not in the table"
    for segment in _named(after, commit.adds):
        if not (_is_within(segment.base_offset, gone) and _is_within(segment.last_offset, gone)):
            return (
                f"it adds {segment.path} for offsets {segment.base_offset}-{segment.last_offset}, where it "
                "removes nothing"
            )
    return None


def _is_within(offset: int, segments: Sequence[Segment]) -> bool:
    """Whether one of `segments`, which are in order, spans `offset`."""
    index = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return index > 0 and offset <= segments[index - 1].last_offset


def first_broken(results: Iterable[Violation]) -> Violation:
    return next((result for result in results if result is not None), None)


_STEPS: tuple[Callable[[Snapshot, Snapshot], Violation], ...] = (
    high_watermark_never_moves_back,
    log_start_never_moves_back,
    cleaned_never_moves_back,
    mirrored_never_moves_back,
    tiered_never_moves_back,
    leader_epoch_never_moves_back,
    nothing_follows_a_deletion,
)
_STATES: tuple[Callable[[Snapshot], Violation], ...] = (
    segments_are_ordered,
    segments_begin_at_the_border,
    modification_time_is_monotone,
)


def broken_state(snapshot: Snapshot) -> list[str]:
    """The violations of the invariants of a single snapshot."""
    return [result for result in (check(snapshot) for check in _STATES) if result is not None]


def gaps(snapshot: Snapshot, begin: int, end: int) -> Iterator[str]:
    """The offsets from `begin` to `end` that have no record."""
    expected = begin
    for segment in snapshot.between(begin, end):
        if segment.base_offset > expected:
            yield f"offsets {expected}-{segment.base_offset - 1} are missing before segment {segment.path}"
        if segment.base_offset >= begin and not segment.dense:
            yield f"offsets are missing inside segment {segment.path}"
        expected = max(expected, segment.last_offset + 1)
    if expected < end:
        yield f"offsets {expected}-{end - 1} are missing at the end"


def broken_step(before: Snapshot, commit: Commit, after: Snapshot | None = None) -> Violation:
    """The first invariant that `commit`, as the version after `before`, would violate.

    `after` is what `before.apply` makes of it, where the caller needs that too.
    """
    kind = kind_of(before, commit)
    after = after or before.apply(commit)
    steps = (check(before, after) for check in _STEPS)
    if kind is CommitKind.APPEND:
        return first_broken((appends_are_contiguous(before, commit, after), *steps, _tail_is_monotone(after)))
    if kind is CommitKind.CLAIM:
        return first_broken((log_epochs_begin_at_the_end(before, commit), *steps))
    if kind is CommitKind.RESTORE:
        steps = (check(before, after) for check in _STEPS if check is not log_start_never_moves_back)
        states = (check(after) for check in _STATES)
        return first_broken((restores_bring_back_what_was(before, commit, after), *steps, *states))
    if kind is CommitKind.MIRROR:
        order = (segments_are_ordered(after), _tail_is_monotone(after))
        return first_broken((mirrors_follow_the_high_watermark(before, commit), *steps, *order))
    checks = _STATES if commit.adds else (segments_begin_at_the_border,)
    states = (check(after) for check in checks)
    if kind is CommitKind.TIER:
        return first_broken((tiers_follow_the_high_watermark(before, commit), *steps, *states))
    rewrite = (adds_lie_within_removes(before, commit, after), *steps, *states)
    return first_broken((*rewrite, rewrite_keeps_records(before, commit, after)))


def _tail_is_monotone(after: Snapshot) -> Violation:
    """The checks of a whole snapshot, for the segment that an append has added at its end."""
    tail = after.segments[-2:]
    if len(tail) == 2 and tail[1].modification_time < tail[0].modification_time:
        return f"segment {tail[1].path} is older than {tail[0].path}, which comes before it"
    return None


def kind_of(before: Snapshot, commit: Commit) -> CommitKind:
    """The kind of `commit`, by its txns. A remote table has moves instead of appends."""
    if _txn(commit, TXN_LEADER) is not None and _txn(commit, TXN_LEADER) != before.leader_epoch:
        return CommitKind.CLAIM
    if _txn(commit, TXN_MIRRORED) is not None:
        return CommitKind.MIRROR
    if _txn(commit, TXN_HIGH_WATERMARK) is not None:
        return CommitKind.APPEND if before.cluster is None else CommitKind.TIER
    return CommitKind.RESTORE if commit.info.operation == RESTORE else CommitKind.MAINTENANCE


def followed(table: str, before: Snapshot, commit: Commit) -> tuple[Snapshot, CommitKind]:
    """`before` with the commit after it, which another process made, and the kind of that.

    Raises ForeignCommit, with the version and the operation, for a commit that violates an invariant, and for
    one of another tool unless it changes nothing (docs/FORMAT.md).
    """
    if is_harmless(commit):
        if not is_ours(commit) or commit.info.operation == VACUUM:
            return before.apply(commit), CommitKind.MAINTENANCE
        raise foreign_commit(table, before.version + 1, commit, "it has lost its actions")
    if not is_ours(commit):
        raise foreign_commit(table, before.version + 1, commit, FOREIGN)
    try:
        after = before.apply(commit)
        reason = broken_step(before, commit, after) or _table_stays(before, commit)
    except CorruptLog as error:
        reason = error.message
    if reason is not None:
        raise foreign_commit(table, before.version + 1, commit, reason)
    return after, kind_of(before, commit)


def is_ours(commit: Commit) -> bool:
    """Whether lakelog made `commit`."""
    return is_our_engine(commit.info.engineInfo)


def is_our_engine(engine: str) -> bool:
    """Whether `engine`, the `engineInfo` of a commit, is lakelog."""
    return engine.startswith("lakelog/")


def check_harmless(table: str, version: int, commit: Commit) -> None:
    """Raise ForeignCommit unless `commit`, which another tool made, changes nothing."""
    if not is_harmless(commit):
        raise foreign_commit(table, version, commit, FOREIGN)


def is_harmless(commit: Commit) -> bool:
    """Whether `commit` has no actions."""
    return not (commit.adds or commit.removes or commit.protocol or commit.metadata or commit.txns)


def foreign_commit(
    table: str, version: int, commit: Commit, reason: str, remedy: str | None = None
) -> ForeignCommit:
    """The error of a commit that may not be there; `remedy` says what to do instead of restoring the log."""
    remedy = remedy or f"run `lakelog fsck`, and remove version {version} and later from the table's log"
    operation = commit.info.operation or "unknown"
    return ForeignCommit(
        f"version {version} of {table} ({operation}) breaks the log: {reason}; stop the other tool, "
        f"and {remedy}",
        version=version,
        operation=operation,
    )


def _table_stays(before: Snapshot, commit: Commit) -> Violation:
    if commit.protocol is not None and commit.protocol != before.protocol:
        return "it changes the protocol of the table"
    if commit.metadata is None:
        return None
    return schema_only_grows(before.metadata.schemaString, commit.metadata.schemaString)


def schema_only_grows(before: str, after: str, partitioned: bool = False) -> Violation:
    """The schema `after` is `before`, or has more declared columns at its end (`schemaString`)."""
    if after == before:
        return None
    broken = "it changes the schema of the table"
    try:
        was, now = declaration_of_schema(before), declaration_of_schema(after)
    except (KeyError, TypeError, ValueError):
        return broken
    grown = now.columns[: len(was.columns)] == was.columns
    return None if grown and after == delta_schema(partitioned, now.fields()) else broken


def _txn(commit: Commit, app_id: str) -> int | None:
    found: Txn | None = next((txn for txn in commit.txns if txn.app_id == app_id), None)
    return None if found is None else found.version
