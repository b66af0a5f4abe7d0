"""The remote root: a second root with cheap storage, and what a partition has there, for its readers.

It has the layout of the first, and a Delta table for each partition of which segments were moved. Where the
local table begins is said by its own `lakelog.tiered`: what is below is read from the remote table, and only
then is the remote root asked for anything.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    CorruptSegment,
    Damaged,
    InvalidArgument,
    ObjectMissing,
    StoreUnavailable,
)
from log_tables.layout import PROPERTY_CLUSTER, REMOTE_MARK, REMOTE_OWNER, log_directory
from log_tables.limits import REMOTE_LOOK_S
from log_tables.segments import segment as segments
from log_tables.store.store import Store
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table, create_table

Result = TypeVar("Result")


class RemoteRoot:
    """The second root of a cluster. It is opened at its first use. Thread-safe."""

    def __init__(
        self,
        url: str,
        cluster_id: str,
        clock: Clock,
        opened: Callable[[], Store],
        owner: Callable[[], str] = lambda: "",
    ) -> None:
        """`opened` gives its store; `cluster_id` is whose tables are looked for there, and `owner` gives what
        the owner of the remote root has, of all roots with this cluster id; "" before one was adopted.
        """
        self.url, self.cluster_id, self._clock, self._opened = url, cluster_id, clock, opened
        self._owner = owner
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

    def mark(self) -> None:
        """Make it the root of this cluster, for good. Raises InvalidArgument when it is another's already."""
        with suppress(AlreadyExists):
            self.store.put_if_absent(REMOTE_MARK, self.cluster_id.encode())
        self.store.make_durable("")
        whose = self._whose()
        if whose != self.cluster_id:
            raise InvalidArgument(
                f"{self.url} is the remote root of cluster {whose}; give each cluster one of its own"
            )

    def take_over(self) -> None:
        """Part all others that have this cluster id from it. Raises StoreUnavailable."""
        self.store.put(REMOTE_OWNER, self._owner().encode())

    def check_owned(self) -> None:
        """Raise CorruptLog when it is not this root's to change, StoreUnavailable when it does not answer."""
        self.check_there()
        try:
            owner = self.store.get(REMOTE_OWNER).decode(errors="replace")
        except ObjectMissing:
            owner = ""
        if owner != self._owner():
            raise CorruptLog(
                "the remote root belongs to another root of this cluster id, which was adopted with "
                "`lakelog root adopt --keep-id`; nothing is changed there. If that one is no more, adopt "
                "this one so"
            )

    def _whose(self) -> str:
        """The cluster whose it says that it is. Raises StoreUnavailable for an empty place."""
        try:
            return self.store.get(REMOTE_MARK).decode(errors="replace")
        except ObjectMissing:
            raise StoreUnavailable(
                f"the remote root has no {REMOTE_MARK}, it is lost or not mounted; mount or restore it, and "
                "repeat the request"
            ) from None

    def check_there(self) -> None:
        """Raise StoreUnavailable when what is at its place is not it, CorruptLog when it is another's.

        A place that a mount has left empty looks like a root that lacks every table.
        """
        whose = self._whose()
        if whose != self.cluster_id:
            raise CorruptLog(
                f"the remote root is that of cluster {whose}, not of {self.cluster_id}; mount the right one"
            )

    def table(self, directory: str) -> Table:
        """The remote table of the partition at `directory`, as it is now.

        Raises StoreUnavailable while it cannot be opened, because it is missing, too; CorruptLog when it is
        another cluster's, ForeignCommit.
        """
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            raise _no_table(directory) from None

    def find(self, directory: str) -> Table | None:
        """The same, None when there is none. Raises as `table` does."""
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            return None

    def make_table(self, directory: str) -> Table:
        """The same, made if there is none, and durable. Raises as `table` does, and as `check_owned`."""
        self.check_owned()
        table = self.find(directory)
        if table is None:
            with suppress(AlreadyExists):  # another process may just have made it
                create_table(self.store, directory, self._clock, {PROPERTY_CLUSTER: self.cluster_id})
            return self.table(directory)
        table.make_durable()
        return table

    def remove(self, directory: str) -> None:
        """Remove all that is below the directory of a deleted topic, but the tables of another cluster.

        Raises as `check_owned` does.
        """
        self.check_owned()
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
        self.check_there()
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
        self._looked = 0.0
        self._joined: tuple[Snapshot, Snapshot, Snapshot] | None = None

    def is_known(self, here: Snapshot) -> bool:
        """Whether `joined` answers from memory."""
        if here.tiered <= here.log_start:
            return True
        return self._opened is not None and not self._is_behind(self._opened[1], here)

    def _is_behind(self, table: Table, here: Snapshot) -> bool:
        """Whether to look at the table again: it may have been merged, and its old files vacuumed."""
        looked_ago_s = table.clock.boottime() - self._looked
        return table.snapshot.high_watermark < here.tiered or looked_ago_s > REMOTE_LOOK_S

    def joined(self, here: Snapshot) -> Snapshot:
        """`here`, the local snapshot, with the remote segments that come before its own.

        Blocking, unless `is_known`. Raises StoreUnavailable, CorruptLog, ForeignCommit.
        """
        if here.tiered <= here.log_start:
            return here
        with self._lock:
            table = self._table()
            if self._is_behind(table, here):
                check_reaches(self._refreshed(table), here, self._directory)
                self._looked = table.clock.boottime()
            there = table.snapshot
            if self._joined is None or self._joined[0] is not here or self._joined[1] is not there:
                self._joined = (here, there, _join(here, there))
            return self._joined[2]

    def _refreshed(self, table: Table) -> Snapshot:
        try:
            return self._asked(lambda: table.refresh(wait=True))
        except CorruptLog:
            self._check_table()
            raise

    def _check_table(self) -> None:
        """Raise StoreUnavailable when the root has no such table: a lost mount leaves an empty directory."""
        root = self._root()
        self._asked(lambda: root.table(self._directory))

    def _table(self) -> Table:
        root = self._root()
        if self._opened is None or self._opened[0] is not root:
            self._opened = root, self._asked(lambda: root.table(self._directory))
            self._looked = self._opened[1].clock.boottime()
        return self._opened[1]

    def _root(self) -> RemoteRoot:
        root = self._root_now()
        if root is None:
            raise no_remote_root(self._directory)
        return root

    def _asked(self, ask: Callable[[], Result]) -> Result:
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
            self._check_table()
            raise


def no_remote_root(directory: str) -> CorruptLog:
    """The error of a partition that has records in the remote root when nobody knows where that is."""
    return CorruptLog(
        f"records of {directory} are in a remote root, and the metadata log names none; name it with "
        "`lakelog maintain --remote-root`"
    )


def _join(here: Snapshot, there: Snapshot) -> Snapshot:
    old = (replace(item, remote=True) for item in there.between(here.log_start, here.tiered))
    return dataclasses.replace(here, segments=(*old, *here.segments))


def _no_table(directory: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the remote root has no table {directory}; mount or restore it, and repeat the request"
    )


def _of_remote(error: StoreUnavailable) -> StoreUnavailable:
    said = error.message
    return StoreUnavailable(said if "remote" in said else f"the remote root does not answer: {said}")


def check_reaches(there: Snapshot, here: Snapshot, directory: str) -> None:
    """Raise StoreUnavailable when the remote table `there` ends before the local one, `here`, begins.

    It is not the one to which the records went: a lost mount, a root that was restored from an old copy.
    """
    if there.high_watermark < here.tiered and here.log_start < here.tiered:
        raise StoreUnavailable(
            f"the remote table {directory} ends at offset {there.high_watermark}, and the local one begins "
            f"at {here.tiered}; mount or restore the remote root, and repeat the request"
        )
