"""Deleted records brought back: the log start becomes what it was, and its segments are part of the table
again.

The log of the table says which files a deletion took out and where the log began before, as far back as its
commits are (an hour at least). Beyond that its snapshots say so, for a day. The files are there until a
vacuum deletes them, a day after another one has marked them.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from msgspec.structs import replace

from log_tables.clock import check_recent
from log_tables.counts import counted
from log_tables.errors import Conflict, begun
from log_tables.layout import TXN_LOG_START
from log_tables.limits import DELETED_SEGMENTS_MAX, FILE_RETENTION_MS, REWRITTEN_FILES_MAX
from log_tables.record import timestamp_text
from log_tables.table.commit import DELETE_RECORDS, RESTORE, Commit, CommitInfo, Txn, read_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.invariant import followed, gaps
from log_tables.table.offer import withdraw_offer
from log_tables.table.snapshot import Segment, Snapshot, deleted_segment
from log_tables.table.starts import Starts
from log_tables.table.table import Table
from log_tables.table.vacuum import spare

IsBefore = Callable[[int | None, int], bool]
"""Whether a commit, by its version and its time (milliseconds since 1970), is of the state that is wanted.
The version is None where it is no longer known.
"""


@dataclass(frozen=True, slots=True)
class Past:
    """The table as it was: its log start, and the segments from there on that deletions have taken since, in
    order. `reach` is the oldest version that the log has, and the time (milliseconds since 1970) since which
    deletions are known.
    """

    log_start: int
    segments: tuple[Segment, ...]
    reach: tuple[int, int]

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)


def look_back(table: Table, is_before: IsBefore) -> Past:
    """Look what a `restore` to the newest state for which `is_before` holds would bring back. It changes
    nothing.

    Raises Conflict where the log does not reach so far back, StoreUnavailable, Damaged.
    """
    now = table.refresh(wait=True)
    snapshot, at_ms, reach = _oldest(table, now.version, is_before)
    start, taken = snapshot.log_start, list[Segment]()
    has_passed = not is_before(snapshot.version, at_ms)
    if has_passed:
        if not is_before(None, reach[1]):
            raise Conflict(
                f"the log of {table.directory} reaches back to version {reach[0]}, and knows what was "
                f"deleted since {_time(reach[1])}; name a later state"
            )
        start, taken = _remembered(snapshot, is_before)
    while snapshot.version < now.version:
        commit = read_commit(table.store, table.directory, snapshot.version + 1)
        if commit is None:
            raise Conflict(f"the log of {table.directory} was cleaned at the same time; repeat it")
        has_passed = has_passed or not is_before(snapshot.version + 1, commit.info.timestamp)
        if has_passed and commit.info.operation == DELETE_RECORDS:
            gone = {remove.path for remove in commit.removes}
            taken += (segment for segment in snapshot.segments if segment.path in gone)
        snapshot, _ = followed(table.directory, snapshot, commit)
        start = start if has_passed else snapshot.log_start
    return Past(start, _chosen(taken, start, now), reach)


def _remembered(snapshot: Snapshot, is_before: IsBefore) -> tuple[int, list[Segment]]:
    """Where the log began in a state before `snapshot`, and the segments that were deleted between them."""
    removes = snapshot.tombstones.deleted()
    found = [deleted_segment(each) for each in removes if not is_before(None, each.deletionTimestamp or 0)]
    start = min((log_start for _, log_start in found), default=snapshot.log_start)
    return start, [segment for segment, _ in found]


def _known_since(table: Table, oldest: Snapshot, at_ms: int) -> int:
    """The time (milliseconds since 1970) from which on all deletions are known, if `oldest` is of `at_ms`."""
    if oldest.version == 0:
        return at_ms
    day = table.clock.now_ms() - FILE_RETENTION_MS
    removes = oldest.tombstones.deleted()
    if len(removes) >= DELETED_SEGMENTS_MAX:
        day = max(day, removes[0].deletionTimestamp or 0)
    return min(at_ms, day)


def _time(ms: int) -> str:
    return timestamp_text(ms * 1_000)


def _chosen(taken: Sequence[Segment], start: int, now: Snapshot) -> tuple[Segment, ...]:
    """Find those of `taken` that end at `start` or later and are not in the table. Of two with one offset,
    which were there before and after a merge, it is the later one.
    """
    end = now.segments[0].base_offset if now.segments else now.high_watermark
    order = sorted(range(len(taken)), key=lambda at: (-taken[at].last_offset, -at))
    chosen: list[Segment] = []
    for segment in [taken[at] for at in order]:
        if start <= segment.last_offset < end:
            chosen.append(segment)
            end = segment.base_offset
    return tuple(reversed(chosen))


def _oldest(table: Table, newest: int, is_before: IsBefore) -> tuple[Snapshot, int, tuple[int, int]]:
    """A snapshot from which the log can be followed, of the wanted state or before, with its time, as new as
    possible; else the oldest. And the oldest version with its time.
    """
    starts = Starts(table.store, table.directory)
    oldest = starts.oldest()
    if oldest is None or oldest[0].version > newest:
        raise Conflict(f"the log of {table.directory} is too young or was cleaned; it knows no earlier state")
    reach = oldest[0].version, _known_since(table, *oldest)
    found = starts.newest(lambda version, at_ms: version <= newest and is_before(version, at_ms))
    return (*(found or oldest), reach)


def check_restorable(table: Table, past: Past) -> None:
    """Raise Conflict, with the offsets or the file, unless `restore` could bring all of `past` back."""
    now = table.snapshot
    _check_here(table, past, now)
    there = {item.path: item.size for item in table.store.list(f"{table.directory}/")}
    for segment in past.segments:
        if there.get(f"{table.directory}/{segment.path}") != segment.size:
            raise Conflict(
                f"the file {table.directory}/{segment.path}, with the records {segment.base_offset} to "
                f"{segment.last_offset}, is gone; choose a later state"
            )
    hole = _hole(_with(now, past.segments, past.log_start), now.log_start)
    if hole is not None:
        raise Conflict(
            f"not all records of {table.directory} can be brought back: {hole}; choose a later state"
        )


def _check_here(table: Table, past: Past, now: Snapshot) -> None:
    if past.log_start < now.tiered:
        raise Conflict(
            f"the records of {table.directory} below offset {now.tiered} were in the remote root, and are "
            "deleted there; choose a later state"
        )


def _with(now: Snapshot, segments: Sequence[Segment], log_start: int) -> Snapshot:
    """`now` with `segments`, from `log_start` on."""
    adds = tuple(segment.add(data_change=False) for segment in segments)
    return now.apply(Commit(CommitInfo(), (Txn(TXN_LOG_START, log_start),), adds))


def _in_order_of_time(some: Sequence[Segment], now: Snapshot) -> list[Segment]:
    """`some` segments, none with a later modification time than the first one of `now`: where that came into
    an empty table, the clock may have been behind that of theirs.
    """
    latest = now.segments[0].modification_time if now.segments else None
    found = list[Segment]()
    for each in reversed(some):
        latest = each.modification_time if latest is None else min(latest, each.modification_time)
        found.append(replace(each, modification_time=latest))
    return found[::-1]


def _hole(after: Snapshot, end: int) -> str | None:
    return next(gaps(after, after.whole_from, end), None) if after.whole_from < end else None


def restore(table: Table, past: Past, most: int = REWRITTEN_FILES_MAX) -> int:
    """Let the log begin where it did in `past`, in commits of at most `most` segments, the newest first;
    returns the log start. Who is killed in between has restored a part, and a repeat goes on.

    Raises Conflict where a file is gone, or will be in an hour; else as `Table.transact`.
    """
    since = table.clock.boottime()
    check_restorable(table, past)
    names = {segment.path for segment in past.segments}
    spare(table, names)
    # Nobody may do once more what is undone here.
    withdraw_offer(table.store, table.directory)
    info, made = commit_info(table.clock, RESTORE), 0

    def build(snapshot: Snapshot) -> Commit | None:
        # Before each put: a vacuum may have deleted the files while this process slept.
        check_recent(table.clock, since, f"a restore of {table.directory}")
        if snapshot.log_start <= past.log_start:
            return None
        _check_here(table, past, snapshot)
        known = {segment.path for segment in snapshot.segments}
        absent = [each for each in past.segments if each.path not in known]
        absent = [each for each in absent if each.base_offset < snapshot.log_start]
        some = absent[-most:]
        start = past.log_start if len(some) == len(absent) else some[0].base_offset
        if _hole(_with(snapshot, some, start), snapshot.log_start) is not None:
            raise Conflict(f"records of {table.directory} were deleted at the same time; repeat the restore")
        adds = tuple(each.add(data_change=False) for each in _in_order_of_time(some, snapshot))
        return Commit(info, txns=(Txn(TXN_LOG_START, start),), adds=adds)

    while True:
        done = f"the return of {counted(made, 'segment')} to {table.directory} is done"
        with begun(done) if made else nullcontext():
            commit = table.transact(build)
        if commit is None:
            break
        made += len(commit.adds)
        info = commit_info(table.clock, RESTORE)
    spare(table, names)  # a vacuum may have marked them meanwhile
    return table.snapshot.log_start
