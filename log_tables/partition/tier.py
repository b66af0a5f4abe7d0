"""Moving the old segments of a partition into its table in the remote root (log_tables/partition/remote.py).

A segment moves in three steps. Each may be killed, and two processes may take it at the same time: `copy`
writes the file there, `commit_copies` commits it there, and `release` removes it here, once the table over
the topic in the remote root has it, too. `lakelog.tiered` of the local table says where the two meet. The
high watermark of the remote table is the end of all that was ever copied. `remove_expired` removes its
segments below the log start of the partition.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile

from msgspec.structs import replace

from log_tables.clock import Clock, SystemClock
from log_tables.errors import CorruptLog, CorruptSegment, ObjectMissing
from log_tables.layout import TXN_HIGH_WATERMARK, TXN_TIERED, segment_name
from log_tables.partition.remote import check_reaches
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.segments.digest import Digest
from log_tables.store.store import Data, Store, open_store
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.first_segments import Due, below, remove_first
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """A task that copies `segments`, neighbours in order, of the table at `directory`.

    `local` and `remote` are the URLs of the roots, `options` those of both; `held` is the high watermark of
    the remote table.
    """

    local: str
    remote: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    directory: str
    segments: tuple[Segment, ...]
    held: int
    compression: str


def run_copy(task: CopyTask) -> tuple[Segment, ...]:
    """`copy` in a process that has no store open."""
    # Opened for each task: a worker lives for many runs, and a root may be mounted anew meanwhile.
    local, remote = (open_store(url, dict(task.options), create=False) for url in (task.local, task.remote))
    return copy(local, remote, task.directory, task.segments, task.held, task.compression, SystemClock())


def copy(
    local: Store,
    remote: Store,
    directory: str,
    given: Sequence[Segment],
    held: int,
    compression: str,
    clock: Clock,
) -> tuple[Segment, ...]:
    """Write the files of the segments `given` to the remote root, and read them back; nothing is committed.

    Returns the segments as they are there, for `commit_copies`. Segments below `held`, the high watermark of
    the remote table, are left out. Of a segment around it, which was merged after a part had been copied,
    only the records from there on are written. Raises CorruptSegment, StoreUnavailable.
    """
    return tuple(
        _copied(local, remote, directory, item, clock)
        if item.base_offset >= held
        else _tail(local, remote, directory, item, held, compression, clock)
        for item in given
        if item.last_offset >= held
    )


def _copied(local: Store, remote: Store, directory: str, item: Segment, clock: Clock) -> Segment:
    try:
        data = local.get(f"{directory}/{item.path}")
    except ObjectMissing:
        raise CorruptSegment(f"segment {directory}/{item.path} is missing; run `lakelog fsck`") from None
    if len(data) != item.size:
        raise CorruptSegment(
            f"segment {directory}/{item.path} has {len(data)} bytes, and the log says {item.size}; run "
            "`lakelog fsck`"
        )
    segments.check(data, directory, item)
    made = replace(item, path=segment_name(item.base_offset, clock.random_hex(8)))
    _put(remote, f"{directory}/{made.path}", data)
    return made


def _tail(
    local: Store, remote: Store, directory: str, item: Segment, held: int, compression: str, clock: Clock
) -> Segment:
    made = rewrite.tail(local, remote, directory, item, held, compression, clock)
    found = sum(
        batch.num_rows for batch in segments.read(remote, directory, made, held, made.last_offset + 1)
    )
    if found != made.records:
        raise _not_as_written(f"{directory}/{made.path}")
    return made


def _put(remote: Store, path: str, data: Data) -> None:
    """Put a new object, and check that it reads back as the same bytes."""
    expected = blake2b(data).digest()
    remote.put_new(path, data)
    if blake2b(remote.get(path)).digest() != expected:
        raise _not_as_written(path)


def _not_as_written(path: str) -> CorruptSegment:
    return CorruptSegment(f"{path} did not read back from the remote root as written; check its store")


def commit_copies(local: Table, remote: Table, copied: Sequence[Segment]) -> None:
    """Commit the segments that `copy` has `copied` in the remote table, which is durable then.

    Segments that another process has moved since are left out of `copied`. If the rest does not continue at
    the end of the remote table, all are left out, and their files are orphans. The remote table gets the
    declared columns of the local one. Raises CorruptLog when the
    remote table holds more than the log ever had, StoreUnavailable, OutcomeUnknown, ForeignCommit.
    """
    # The local table first: a segment that is not below the end of the remote one yet is not removed.
    here = local.refresh(wait=True)
    local.make_durable()  # records that a power cut undoes here must not be there
    remote.refresh(wait=True)
    _check_copied_of(local, remote.snapshot)
    remote.widen(here.declared)
    _add(remote, here, copied)


def release(local: Table, remote: Table, copied: Sequence[Segment], end: int) -> tuple[Segment, ...]:
    """Remove from the local table, after `commit_copies`, the segments below offset `end`.

    Up to there the table over the topic in the remote root is folded. Returns the segments. Those that this
    process has not `copied` itself are compared first. The newest segment always stays: the next one is timed
    after it. Raises CorruptLog, StoreUnavailable, OutcomeUnknown, ForeignCommit.
    """
    just_copied = {(item.base_offset, item.last_offset) for item in copied}
    end = min(end, remote.snapshot.high_watermark)
    held = [item for item in local.snapshot.segments if item.last_offset < end]
    for item in held:
        if (item.base_offset, item.last_offset) not in just_copied:
            _check_same(local, remote, item)
    return _release(local, {item.path for item in held})


def _check_same(local: Table, remote: Table, item: Segment) -> None:
    """Raise CorruptLog unless the remote table holds the very records of `item`, which another process
    copied.

    A root that was restored from an old copy gives the offsets of lost records to new ones.
    """
    begin = max(item.base_offset, local.snapshot.log_start)
    here, there = Digest(), Digest()
    for batch in segments.read(local.store, local.directory, item, begin, item.last_offset + 1):
        here.update(batch)
    for part in remote.snapshot.between(begin, item.last_offset + 1):
        for batch in segments.read(remote.store, remote.directory, part, begin, item.last_offset + 1):
            there.update(batch)
    if here.value() != there.value():
        raise CorruptLog(
            f"offsets {begin}-{item.last_offset} of {local.directory} are other records in the remote root, "
            "so nothing was removed; restore both roots from the same time"
        )


def _check_copied_of(local: Table, there: Snapshot) -> None:
    """Raise CorruptLog when the log ends before its copy does: then its next records are other ones."""
    # This refresh comes after that of the remote table, so only a restored log can be behind.
    if there.high_watermark <= local.snapshot.high_watermark:
        return
    end = local.refresh(wait=True).high_watermark
    if there.high_watermark > end:
        raise CorruptLog(
            f"the remote table {local.directory} ends at offset {there.high_watermark}, and the log of which "
            f"it was copied at {end}; restore both roots from the same time"
        )


def _add(remote: Table, here: Snapshot, copied: Sequence[Segment]) -> None:
    info = commit_info(remote.clock, "TIER")

    def build(there: Snapshot) -> Commit | None:
        check_reaches(there, here, remote.directory)
        wanted = [item for item in copied if item.last_offset >= max(there.high_watermark, here.log_start)]
        if not wanted or not _connected(here, there.high_watermark, wanted):
            return None
        adds = tuple(item.add(data_change=True) for item in _timed(there, wanted))
        return Commit(info, txns=(Txn(TXN_HIGH_WATERMARK, wanted[-1].last_offset + 1),), adds=adds)

    remote.transact(build)


def _timed(there: Snapshot, wanted: Sequence[Segment]) -> Iterator[Segment]:
    """`wanted`, timed no earlier than what is there: the next segments of a log may be, once it was
    deleted whole.
    """
    newest = there.segments[-1].modification_time if there.segments else 0
    for item in wanted:
        newest = max(newest, item.modification_time)
        yield replace(item, modification_time=newest)


def _connected(here: Snapshot, held: int, wanted: Sequence[Segment]) -> bool:
    """Whether `wanted` continue at `held`, and one another, without a record of the log in between."""
    if wanted[0].base_offset < held:
        return False
    expected = max(held, here.log_start)
    for item in wanted:
        if item.base_offset > expected and here.between(expected, item.base_offset):
            return False
        expected = item.last_offset + 1
    return True


def _release(local: Table, held: Collection[str]) -> tuple[Segment, ...]:
    """Remove from the head of the local table the files `held`, which the remote one has."""

    def due(snapshot: Snapshot) -> Due | None:
        gone = [*takewhile(lambda item: item.path in held, snapshot.segments[:-1])]
        return (gone, Txn(TXN_TIERED, gone[-1].last_offset + 1)) if gone else None

    return remove_first(local, "TIER", due)


def remove_expired(remote: Table, log_start: int) -> tuple[Segment, ...]:
    """Remove from the remote table the segments that lie wholly below the log start of their partition.

    Returns them. Raises StoreUnavailable, OutcomeUnknown, ForeignCommit.
    """
    remote.refresh(wait=True)

    def due(snapshot: Snapshot) -> Due | None:
        found = below(snapshot, log_start)
        return found if found[0] else None

    return remove_first(remote, "DELETE RECORDS", due)
