"""The remote root: a second root with cheap storage, and the segments of a partition there.

It has the layout of the first root, with a Delta table for each partition of which segments were moved, and
one over them all, their fold, for each topic. The local table begins at its `lakelog.tiered`: offsets below
are read from the remote table, and only then is the remote root asked for anything.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
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
    TopicDeleted,
)
from log_tables.layout import PROPERTY_CLUSTER, REMOTE_MARK, REMOTE_OWNER, log_directory
from log_tables.limits import REMOTE_LOOK_S, WHOLE_SEGMENT_BYTES
from log_tables.record import RECORD_SCHEMA
from log_tables.segments import segment as segments
from log_tables.store.store import Store, ensure
from log_tables.table.checkpoint import newest_checkpoint
from log_tables.table.commit import read_commit
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table, create_table
from log_tables.topic_table.topic_table import TopicTable, create_topic_table, refold

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
        """`opened` gives its store. `cluster_id` is the cluster that owns its tables. `owner` gives the mark
        of the root which may change it, of all roots with this cluster id; "" before one was adopted.
        """
        self.url, self.cluster_id, self._clock, self._opened = url, cluster_id, clock, opened
        self._owner = owner
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._opening = threading.Lock()
        self._topic_tables: dict[str, TopicTable] = {}

    @property
    def store(self) -> Store:
        """Its store. Raises StoreUnavailable while it cannot be opened."""
        with self._lock:
            if self._store is None:
                try:
                    self._store = self._opened()
                except InvalidArgument:
                    raise StoreUnavailable(
                        "the remote root is missing, or its options are wrong; mount it or correct the "
                        "options, and repeat the request"
                    ) from None
            return self._store

    def mark(self) -> None:
        """Make it the remote root of this cluster, for good. Raises InvalidArgument if another cluster
        owns it.
        """
        ensure(self.store, REMOTE_MARK, self.cluster_id.encode())
        self.store.make_durable("")
        whose = self._whose()
        if whose != self.cluster_id:
            raise InvalidArgument(
                f"{self.url} is the remote root of cluster {whose}; give each cluster its own remote root"
            )

    def take_over(self) -> None:
        """Let this root alone change it, of all roots with this cluster id. Raises StoreUnavailable."""
        self.store.put(REMOTE_OWNER, self._owner().encode())

    def check_owned(self) -> None:
        """Raise CorruptLog when this root may not change it, StoreUnavailable when it does not answer."""
        self.check_there()
        try:
            owner = self.store.get(REMOTE_OWNER).decode(errors="replace")
        except ObjectMissing:
            owner = ""
        if owner != self._owner():
            raise CorruptLog(
                "the remote root belongs to another root of this cluster id, which was adopted with "
                "`lakelog root adopt --keep-id`, so nothing was changed there; if that root no longer "
                "exists, adopt this one in the same way"
            )

    def _whose(self) -> str:
        """The id of the cluster that owns it. Raises StoreUnavailable for an empty directory."""
        try:
            return self.store.get(REMOTE_MARK).decode(errors="replace")
        except ObjectMissing:
            raise StoreUnavailable(
                f"the remote root has no {REMOTE_MARK}, so it is lost or not mounted; mount or restore "
                "it, and repeat the request"
            ) from None

    def check_there(self) -> None:
        """Raise StoreUnavailable when there is no remote root, CorruptLog when another cluster owns it.

        A lost mount leaves an empty directory, which looks like a root without tables.
        """
        whose = self._whose()
        if whose != self.cluster_id:
            raise CorruptLog(
                f"the remote root belongs to cluster {whose}, not to {self.cluster_id}; mount the right one"
            )

    def table(self, directory: str) -> Table:
        """The remote table of the partition at `directory`, as it is now.

        Raises StoreUnavailable while it is missing or cannot be opened, CorruptLog when another cluster owns
        it, ForeignCommit.
        """
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            raise _no_table(directory) from None

    def find(self, directory: str) -> Table | None:
        """The remote table of the partition, None without one. Raises as `table` does."""
        try:
            return self._opened_table(directory)
        except ObjectMissing:
            return None

    def make_table(self, directory: str) -> Table:
        """The remote table of the partition, created if there is none, and durable.

        Raises as `table` and `check_owned` do.
        """
        self.check_owned()
        table = self.find(directory)
        if table is None:
            with suppress(AlreadyExists):  # another process may just have created it
                create_table(self.store, directory, self._clock, self._owned())
            return self.table(directory)
        table.make_durable()
        return table

    def find_topic_table(self, directory: str) -> TopicTable | None:
        """The table over the remote tables of the topic at `directory`, None without one.

        It stays open, as reading it whole takes long where it names many files. Raises as `table` does.
        """
        self.check_there()
        with self._opening:
            known = self._topic_tables.pop(directory, None)
            if known is not None:
                with suppress(Damaged):  # it may be gone, or begun again
                    known.refresh(wait=True)
                    self._topic_tables[directory] = known
                    return known
            try:
                table = TopicTable(self.store, directory, self._clock)
            except ObjectMissing:
                return None
            _check_cluster(table.snapshot.cluster, directory, self.cluster_id)
            self._topic_tables[directory] = table
            return table

    def make_topic_table(self, directory: str) -> TopicTable:
        """The table over the remote tables of the topic at `directory`, created if there is none, and
        durable.

        Raises as `table` and `check_owned` do.
        """
        self.check_owned()
        table = self.find_topic_table(directory)
        if table is None:
            with suppress(AlreadyExists):  # another process may just have created it
                create_topic_table(self.store, directory, self._clock, self._owned())
            table = self.find_topic_table(directory)
        if table is None:
            raise _no_table(directory)
        table.make_durable()
        return table

    def refold(self, directory: str) -> None:
        """Begin the table over the remote tables of the topic at `directory` again, as `topic_table.refold`.

        Raises as `check_owned` does.
        """
        self.check_owned()
        refold(self.store, directory, self._clock, self._owned())

    def _owned(self) -> dict[str, str]:
        """The properties by which a table is this cluster's."""
        return {PROPERTY_CLUSTER: self.cluster_id}

    def remove(self, directory: str) -> None:
        """Remove everything in the directory of a deleted topic except for tables of another cluster.

        Raises as `check_owned` does.
        """
        self.check_owned()
        whole = self._end_topic_table(directory)
        for table in self.store.list_dirs(f"{directory}/"):
            if table != log_directory(directory) and self._may_remove(table):
                # The log last, and its beginning at the very end: until then it names the owner of the table.
                paths = [item.path for item in self.store.list(f"{table}/")]
                for path in sorted(
                    paths, key=lambda path: (log_directory("") not in path, path), reverse=True
                ):
                    self.store.delete(path)
        if whole:
            # Its beginning first: without its end, it would name files that are gone.
            for path in sorted(item.path for item in self.store.list(f"{log_directory(directory)}/")):
                self.store.delete(path)

    def _end_topic_table(self, directory: str) -> bool:
        """Empty the table over the topic, before its files go; returns whether its log may go then, too."""
        try:
            table = TopicTable(self.store, directory, self._clock)
            if table.snapshot.cluster != self.cluster_id:
                return False
            table.end()
        except (ObjectMissing, TopicDeleted):
            return True  # it is gone, or it has ended: a process that slept may have written there since
        except Damaged:
            return self._began_here(directory)  # another tool may have committed to it
        return True

    def _began_here(self, directory: str) -> bool:
        """Whether the beginning of a log says that the table is this cluster's, whatever comes after that."""
        with suppress(Damaged):
            first = read_commit(self.store, directory, 0) or newest_checkpoint(self.store, directory)
            metadata = None if first is None else first.metadata
            return metadata is not None and metadata.configuration.get(PROPERTY_CLUSTER) == self.cluster_id
        return False

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
        _check_cluster(table.snapshot.cluster, directory, self.cluster_id)
        return table


def _check_cluster(found: str | None, directory: str, cluster_id: str) -> None:
    if found != cluster_id:
        whose = f"cluster {found}" if found else "no remote tier"
        raise CorruptLog(
            f"the remote table {directory} is of {whose}, not of cluster {cluster_id}; give each cluster its "
            "own remote root"
        )


class RemoteTier:
    """The segments of one partition in the remote root, for its readers. Thread-safe."""

    def __init__(self, directory: str, root: Callable[[], RemoteRoot | None]) -> None:
        """`directory` is that of the partition. `root` gives the current remote root, None without one."""
        self._directory, self._root_now = directory, root
        self._lock = threading.Lock()
        self._opened: tuple[RemoteRoot, Table] | None = None
        self._looked = 0.0
        self._joined: tuple[Snapshot, Snapshot, Snapshot] | None = None

    def is_known(self, here: Snapshot) -> bool:
        """Whether `joined` does no I/O."""
        if here.tiered <= here.log_start:
            return True
        return self._opened is not None and not self._is_behind(self._opened[1], here)

    def _is_behind(self, table: Table, here: Snapshot) -> bool:
        """Whether to refresh the table: segments may have been merged since, and the old files vacuumed."""
        looked_ago_s = table.clock.boottime() - self._looked
        return table.snapshot.high_watermark < here.tiered or looked_ago_s > REMOTE_LOOK_S

    def expire(self) -> None:
        """Look at the remote table again at the next `joined`: a file that it named is gone."""
        self._looked = -math.inf

    def joined(self, here: Snapshot) -> Snapshot:
        """`here`, the local snapshot, with the remote segments before its own.

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
        """Raise StoreUnavailable when the root lacks the table: a lost mount leaves an empty directory."""
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

    def store(self) -> Store:
        """The store of the remote root. Raises CorruptLog without one, StoreUnavailable."""
        return self._root().store

    def _asked(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except StoreUnavailable as error:
            raise _of_remote(error) from None

    def read(
        self,
        segment: Segment,
        start: int,
        end: int,
        schema: pa.Schema | None = RECORD_SCHEMA,
        whole_bytes: int = WHOLE_SEGMENT_BYTES,
        whole_groups: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """`segment.read` of a remote segment. Raises StoreUnavailable, also when the root is missing, and
        CorruptSegment.
        """
        root = self._root()
        try:
            yield from segments.read(
                root.store, self._directory, segment, start, end, schema, whole_bytes, whole_groups
            )
        except StoreUnavailable as error:
            raise _of_remote(error) from None
        except CorruptSegment:
            self._check_table()
            raise


def no_remote_root(directory: str) -> CorruptLog:
    """The error of a partition that has records in a remote root when none is set."""
    return CorruptLog(
        f"records of {directory} are in a remote root, and the metadata log names none; set it with "
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

    Then it is not the table to which the records went: a mount is lost, or an old copy of the root was
    restored.
    """
    if there.high_watermark < here.tiered and here.log_start < here.tiered:
        raise StoreUnavailable(
            f"the remote table {directory} ends at offset {there.high_watermark}, and the local one begins "
            f"at {here.tiered}; mount or restore the remote root, and repeat the request"
        )
