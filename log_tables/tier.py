"""The remote tier: the old segments of a partition, under a second root, in a Delta table of their own.

A segment moves in three steps, each safe to be killed in and safe beside another process that does the same:
`copy` writes its file there, `commit_move` commits it there and only then removes it here. Where they meet
is said here, by `lakelog.tiered`. The remote table's high watermark is the end of what was ever copied; what
it holds below the partition's log start is nobody's any more, and `remove_expired` takes it out.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from log_tables import rewrite
from log_tables import segment as segments
from log_tables.clock import Clock, SystemClock
from log_tables.commit import Commit, Txn
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    CorruptSegment,
    Damaged,
    InvalidArgument,
    ObjectMissing,
    StoreUnavailable,
)
from log_tables.layout import (
    PROPERTY_CLUSTER,
    TXN_HIGH_WATERMARK,
    TXN_LOG_START,
    TXN_TIERED,
    log_directory,
    segment_name,
)
from log_tables.snapshot import Segment, Snapshot
from log_tables.store import Data, Store, open_store
from log_tables.table import Table, commit_info, create_table

Answer = TypeVar("Answer")


class RemoteRoot:
    """The second root of a cluster. It is opened at its first use. Thread-safe."""

    def __init__(self, url: str, cluster_id: str, clock: Clock, opened: Callable[[], Store]) -> None:
        """`opened` gives its store; `cluster_id` is whose tables are looked for there."""
        self.url, self.cluster_id, self._clock, self._opened = url, cluster_id, clock, opened
        self._lock = threading.Lock()
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """Its store. Raises StoreUnavailable as long as it cannot be opened."""
        with self._lock:
            if self._store is None:
                try:
                    self._store = self._opened()
                except InvalidArgument:
                    raise StoreUnavailable(
                        "the remote root is not there, or its options do not fit; mount it or correct the "
                        "options, and repeat the request"
                    ) from None
            return self._store

    def table(self, directory: str) -> Table:
        """The remote table of the partition at `directory`, as it is now.

        Raises StoreUnavailable while it cannot be opened, because it is missing, too; CorruptLog when it is
        another cluster's, ForeignCommit.
        """
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            raise StoreUnavailable(
                f"the remote root has no table {directory}; mount or restore it, and repeat the request"
            ) from None

    def find(self, directory: str) -> Table | None:
        """The same, None when there is none. Raises as `table` does."""
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            return None

    def make_table(self, directory: str) -> Table:
        """The same, made if there is none. Raises as `table` does."""
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            with suppress(AlreadyExists):  # another process may just have made it
                create_table(self.store, directory, self._clock, {PROPERTY_CLUSTER: self.cluster_id})
            return self.table(directory)

    def remove(self, directory: str) -> None:
        """Remove all that is below the directory of a deleted topic, but the tables of another cluster.

        Raises StoreUnavailable.
        """
        for table in self.store.list_dirs(f"{directory}/"):
            if self._may_remove(table):
                # The log last, and its beginning at the very end: until then it says whose the table is.
                paths = [item.path for item in self.store.list(f"{table}/")]
                for path in sorted(
                    paths, key=lambda path: (log_directory("") not in path, path), reverse=True
                ):
                    self.store.delete(path)

    def _may_remove(self, table: str) -> bool:
        try:
            return Table(self.store, table, self._clock).snapshot.cluster == self.cluster_id
        except ObjectMissing:
            return True  # of a table that is gone: a mover that slept has written here since
        except Damaged:
            return False

    def _opened_table(self, directory: str) -> Table:
        table = Table(self.store, directory, self._clock)
        _check_cluster(table.snapshot, directory, self.cluster_id)
        return table


def _check_cluster(snapshot: Snapshot, directory: str, cluster_id: str) -> None:
    if snapshot.cluster != cluster_id:
        whose = f"cluster {snapshot.cluster}" if snapshot.cluster else "no remote tier"
        raise CorruptLog(
            f"the remote table {directory} is of {whose}, not of cluster {cluster_id}; give each cluster a "
            "remote root of its own"
        )


class RemoteTier:
    """What one partition has in the remote root, for its readers. Thread-safe."""

    def __init__(self, directory: str, root: Callable[[], RemoteRoot | None]) -> None:
        """Of the partition at `directory`. `root` gives the remote root of now, None without one."""
        self._directory, self._root_now = directory, root
        self._lock = threading.Lock()
        self._opened: tuple[RemoteRoot, Table] | None = None
        self._joined: tuple[Snapshot, Snapshot, Snapshot] | None = None

    def is_known(self, here: Snapshot) -> bool:
        """Whether `joined` answers from memory."""
        opened = self._opened
        if here.tiered <= here.log_start:
            return True
        return opened is not None and opened[1].snapshot.high_watermark >= here.tiered

    def joined(self, here: Snapshot) -> Snapshot:
        """`here`, the local snapshot, with the remote segments that come before its own.

        Blocking, unless `is_known`. Raises StoreUnavailable, CorruptLog, ForeignCommit.
        """
        if here.tiered <= here.log_start:
            return here
        with self._lock:
            table = self._table()
            if table.snapshot.high_watermark < here.tiered:
                check_reaches(self._asked(lambda: table.refresh(wait=True)), here, self._directory)
            there = table.snapshot
            if self._joined is None or self._joined[0] is not here or self._joined[1] is not there:
                self._joined = (here, there, _join(here, there))
            return self._joined[2]

    def _table(self) -> Table:
        root = self._root()
        if self._opened is None or self._opened[0] is not root:
            self._opened = root, self._asked(lambda: root.table(self._directory))
        return self._opened[1]

    def _root(self) -> RemoteRoot:
        root = self._root_now()
        if root is None:
            raise CorruptLog(
                f"records of {self._directory} are in a remote root, and the metadata log names none; name "
                "it with `lakelog maintain --remote-root`"
            )
        return root

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except StoreUnavailable as error:
            raise _of_remote(error) from None

    def read(
        self, segment: Segment, start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`segment.read` of a segment that is there. Raises StoreUnavailable, when the root is not there too,
        and CorruptSegment.
        """
        root = self._root()
        try:
            yield from segments.read(root.store, self._directory, segment, start, end, columns)
        except StoreUnavailable as error:
            raise _of_remote(error) from None
        except CorruptSegment:
            self._asked(lambda: root.table(self._directory))  # a lost mount has no table either
            raise


def _join(here: Snapshot, there: Snapshot) -> Snapshot:
    old = (replace(item, remote=True) for item in there.between(here.log_start, here.tiered))
    return dataclasses.replace(here, segments=(*old, *here.segments))


def _of_remote(error: StoreUnavailable) -> StoreUnavailable:
    said = error.message
    return StoreUnavailable(said if "remote" in said else f"the remote root does not answer: {said}")


@dataclass(frozen=True, slots=True)
class Copying:
    """What one task copies: `segments`, neighbours in order, of the table at `directory`.

    `local` and `remote` are the URLs of the roots, `options` those of both; `held` is the high watermark of
    the remote table.
    """

    local: str
    remote: str
    options: tuple[tuple[str, str], ...]
    directory: str
    segments: tuple[Segment, ...]
    held: int
    compression: str


def copied(task: Copying) -> tuple[Segment, ...]:
    """`copy` in a process that has nothing open."""
    local, remote = _store(task.local, task.options), _store(task.remote, task.options)
    return copy(local, remote, task.directory, task.segments, task.held, task.compression, SystemClock())


@lru_cache(maxsize=16)
def _store(url: str, options: tuple[tuple[str, str], ...]) -> Store:
    return open_store(url, dict(options), create=False)


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

    Returns the segments as they are there, for `commit_move`. Left out is what lies below `held`, the high
    watermark of the remote table; of a segment around it (merged, when a part of it had been copied already)
    what is at or above it is written anew. Raises CorruptSegment, StoreUnavailable.
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
        raise CorruptSegment(
            f"segment {directory}/{item.path} is missing; look with `lakelog fsck`"
        ) from None
    if len(data) != item.size:
        raise CorruptSegment(
            f"segment {directory}/{item.path} has {len(data)} bytes, the log says {item.size}; look with "
            "`lakelog fsck`"
        )
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
    """Put a new object and see that it reads back as the same bytes."""
    expected = blake2b(data).digest()
    remote.put_new(path, data)
    if blake2b(remote.get(path)).digest() != expected:
        raise _not_as_written(path)


def _not_as_written(path: str) -> CorruptSegment:
    return CorruptSegment(f"{path} did not read back from the remote root as written; check its store")


def commit_move(local: Table, remote: Table, copied: Sequence[Segment]) -> tuple[Segment, ...]:
    """Commit what `copy` has copied in the remote table, then remove from the local one what is there.

    Returns the segments that were removed here. What another process has moved meanwhile is left out of
    `copied`; all of it is when the rest does not go on where the remote table ends (its files are orphans).
    With nothing copied a move is completed that was killed between the two commits. The newest segment
    always stays: it says when the next one may be from. Raises StoreUnavailable, OutcomeUnknown,
    ForeignCommit.
    """
    # First the local table: what was not below the end of the remote one then is not removed on its account.
    here = local.refresh(wait=True)
    remote.refresh(wait=True)
    _add(remote, here, copied)
    return _release(local, remote.snapshot.high_watermark)


def _add(remote: Table, here: Snapshot, copied: Sequence[Segment]) -> None:
    info = commit_info(remote.clock, "TIER")

    def build(there: Snapshot) -> Commit | None:
        check_reaches(there, here, remote.directory)
        wanted = [item for item in copied if item.last_offset >= max(there.high_watermark, here.log_start)]
        if not wanted or not _connected(here, there.high_watermark, wanted):
            return None
        adds = tuple(item.add(data_change=True) for item in wanted)
        return Commit(info, txns=(Txn(TXN_HIGH_WATERMARK, wanted[-1].last_offset + 1),), adds=adds)

    remote.transact(build)


def check_reaches(there: Snapshot, here: Snapshot, directory: str) -> None:
    """Raise StoreUnavailable when the remote table `there` ends before the local one, `here`, begins.

    It is not the one to which the records went: a lost mount, a root that was restored from an old copy.
    """
    if there.high_watermark < here.tiered and here.log_start < here.tiered:
        raise StoreUnavailable(
            f"the remote table {directory} ends at offset {there.high_watermark}, and the local one begins "
            f"at {here.tiered}; mount or restore the remote root, and repeat the request"
        )


def _connected(here: Snapshot, held: int, wanted: Sequence[Segment]) -> bool:
    """Whether `wanted` follow each other, and what is held, without leaving out a record of the log."""
    if wanted[0].base_offset < held:
        return False
    expected = max(held, here.log_start)
    for item in wanted:
        if item.base_offset > expected and here.between(expected, item.base_offset):
            return False
        expected = item.last_offset + 1
    return True


def _release(local: Table, held: int) -> tuple[Segment, ...]:
    """Remove from the local table what the remote one holds, which is all below `held`."""
    info = commit_info(local.clock, "TIER")
    gone: list[Segment] = []

    def build(snapshot: Snapshot) -> Commit | None:
        gone[:] = [item for item in snapshot.segments[:-1] if item.last_offset < held]
        if not gone:
            return None
        now_ms = local.clock.now_ms()
        removes = tuple(item.remove(now_ms, data_change=True) for item in gone)
        return Commit(info, txns=(Txn(TXN_TIERED, gone[-1].last_offset + 1),), removes=removes)

    local.transact(build)
    return tuple(gone)


def remove_expired(remote: Table, log_start: int) -> tuple[Segment, ...]:
    """Remove from the remote table the segments that lie wholly below the log start of their partition.

    Returns them. Raises StoreUnavailable, OutcomeUnknown, ForeignCommit.
    """
    remote.refresh(wait=True)
    info = commit_info(remote.clock, "DELETE RECORDS")
    gone: list[Segment] = []

    def build(snapshot: Snapshot) -> Commit | None:
        gone[:] = [item for item in snapshot.segments if item.last_offset < log_start]
        if not gone:
            return None
        now_ms = remote.clock.now_ms()
        removes = tuple(item.remove(now_ms, data_change=True) for item in gone)
        start = max(snapshot.log_start, min(log_start, snapshot.high_watermark))
        return Commit(info, txns=(Txn(TXN_LOG_START, start),), removes=removes)

    remote.transact(build)
    return tuple(gone)
