"""The tables of a root that is in use, all as of one moment, for a copy.

Gateways write during the copy, so the order counts. First each table is opened. Then the groups' tables are
read to their ends, with the staged files of their pending transactions. Then all other tables are followed,
each to its end or to the first commit of a transaction that the groups' tables do not have, so that a
transaction is copied whole or not at all. The groups' tables are not read at one moment: where a group is
ahead of a table that ends early, all are read on, until none is; and where it has offsets of a transaction
that the table of its transactional id has not, that one is.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, ObjectMissing
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import (
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    TXN_DELETED,
    TXN_LOG_START,
    partition_directory,
)
from log_tables.limits import CONFIRMATION_MAX_AGE_S, COPIED_AT_ONCE, COPY_LOOKS_MAX
from log_tables.root.group_replay import GroupReplay, applied
from log_tables.store.store import Store
from log_tables.table.commit import Commit, Txn, read_commit
from log_tables.table.invariant import followed
from log_tables.table.snapshot import Segment, Snapshot, first_snapshot
from log_tables.table.table import Table

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Cut:
    """The tables of a root as of one moment. `remote` holds its snapshots of remote tables."""

    tables: dict[str, Snapshot] = field(default_factory=dict)
    remote: dict[str, Snapshot] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, Segment, bool]]:
        """(table, segment, whether it is in the remote root) of every file. Raises CorruptLog."""
        for directory, here in self.tables.items():
            yield from ((directory, item, True) for item in self.moved(directory))
            yield from ((directory, item, False) for item in here.segments)

    def moved(self, directory: str) -> tuple[Segment, ...]:
        """The segments of a remote table that come before those of the local one. Raises CorruptLog."""
        here, there = self.tables[directory], self.remote.get(directory)
        if there is None or here.tiered <= here.log_start:
            return ()
        found = there.between(here.log_start, here.tiered)
        if found and found[-1].last_offset >= here.tiered:
            raise CorruptLog(
                f"segment {found[-1].path} of the remote table {directory} ends after offset {here.tiered}, "
                "where the local one begins; run `lakelog maintain` on the original, and copy it again"
            )
        return found


def cut_root(source: Store, target: Store, clock: Clock, with_credentials: bool = False) -> Cut | None:
    """The tables of the root of `source` as of one moment, that of the credentials only `with_credentials`;
    None when it changed too much to find one.

    Puts the staged files of its pending transactions into `target`. Raises InvalidArgument, Damaged,
    StoreUnavailable.
    """
    began = clock.boottime()
    cluster = Cluster.open(source, clock, create=False)
    found = _Cutter(cluster, target).cut()
    if found is not None and with_credentials:
        found.tables |= _opened(source, [CREDENTIALS_DIRECTORY], clock)
    return found if clock.boottime() - began < CONFIRMATION_MAX_AGE_S else None


class _Cutter:
    """Follows the tables of a root until they are of one moment."""

    def __init__(self, cluster: Cluster, target: Store) -> None:
        """Opens each table: from then on its commits stay for an hour."""
        self._cluster, self._source, self._target = cluster, cluster.store, target
        self._groups = GroupReplay()
        self._staged: set[str] = set()
        self._tables = _opened(cluster.store, self._directories(), cluster.clock)
        self._early: set[str] = set()

    def cut(self) -> Cut | None:
        offsets = self._directories(CONSUMER_OFFSETS)
        for _ in range(COPY_LOOKS_MAX):
            self._follow_groups(offsets)
            self._cluster.refresh(wait=True)
            if self._directories(CONSUMER_OFFSETS) != offsets:
                return None  # the first group was just created
            metadata = self._cluster.metadata_log.partition.snapshot
            topics = [directory for directory in self._directories() if directory not in offsets]
            try:
                self._follow_topics(topics)
            except ObjectMissing:
                return None  # a topic was deleted and swept
            if not self._is_a_group_ahead():
                revived = self._places()
                tables = {at: going_on(self._tables[at], revived[at]) for at in (*offsets, *topics)}
                return self._with_remote(Cut({METADATA_DIRECTORY: metadata, **tables}))
        return None

    def _directories(self, only: str = "") -> list[str]:
        """The tables of the live topics, or of the one called `only`."""
        return [*self._places(only)]

    def _places(self, only: str = "") -> dict[str, int]:
        """The tables of `_directories`, and how often the topic of each was brought back."""
        return {
            partition_directory(topic.directory, partition): topic.revived
            for topic in self._cluster.topics(include_internal=True)
            if topic.name == (only or topic.name)
            for partition in range(topic.partition_count)
        }

    def _follow_groups(self, directories: Sequence[str]) -> None:
        """Read the groups' tables to their ends, and copy the staged files of their pending transactions.

        A file that is gone was applied, as the table of its group says further on.
        """

        def followed(directory: str) -> Snapshot:
            return _followed(self._source, directory, self._tables[directory], lambda _: False)[0]

        for _ in range(COPY_LOOKS_MAX):
            self._tables.update(zip(directories, in_threads(followed, directories), strict=True))
            for directory in directories:
                self._groups.follow(self._source, directory, self._tables[directory])
            self._follow_ids(directories)
            with suppress(ObjectMissing):
                self._copy_staged()
                return
        raise CorruptLog(
            "staged files are missing for which committed transactions of groups wait; run `lakelog fsck`"
        )

    def _follow_ids(self, directories: Sequence[str]) -> None:
        """Read the tables of transactional ids on, up to the ends of transactions of which groups have
        committed offsets. What else is read by that is older than those, so this comes to an end.
        """
        seen: dict[str, int] = {}
        while behind := {name: n for name, n in self._groups.behind().items() if n > seen.get(name, 0)}:
            seen |= behind
            for name, number in behind.items():
                directory = directories[partition_for_key(name.encode(), len(directories), MURMUR3)]
                while self._groups.ended.get(name, 0) < number and self._read_on(directory):
                    pass

    def _read_on(self, directory: str) -> bool:
        """Read one commit of a table of groups; whether there is one."""
        before = self._tables[directory]
        commit = read_commit(self._source, directory, before.version + 1)
        if commit is None:
            return False
        self._tables[directory], _ = followed(directory, before, commit)
        self._groups.follow(self._source, directory, self._tables[directory])
        return True

    def _copy_staged(self) -> None:
        """Raises ObjectMissing when a file is gone."""
        wanted = self._groups.staged().keys()
        for path in self._staged - wanted:
            self._target.delete(path)
            self._staged.discard(path)
        for path in wanted - self._staged:
            self._target.put(path, self._source.get(path))
            self._staged.add(path)

    def _follow_topics(self, directories: Sequence[str]) -> None:
        """Read these tables on, each to its end or to a transaction that the groups do not have.

        Raises ObjectMissing.
        """

        def followed(directory: str) -> tuple[Snapshot, bool]:
            begin = self._tables.get(directory) or _first(self._source, directory)
            return _followed(self._source, directory, begin, self._is_later)

        self._early.clear()
        for directory, (here, early) in zip(directories, in_threads(followed, directories), strict=True):
            self._tables[directory] = here
            if early:
                self._early.add(directory)

    def _is_later(self, commit: Commit) -> bool:
        """Whether `commit` has records of a transaction that the groups' tables do not have."""
        return any(epoch > self._groups.epochs.get(number, -1) for number, epoch in applied(commit.txns))

    def _is_a_group_ahead(self) -> bool:
        """Whether a group has committed an offset beyond the end of a table that ends early."""
        for key, committed in self._groups.places():
            topic = self._cluster.cached_topic(key.topic)
            if topic is None or topic.topic_id != committed.topic_id:
                continue
            directory = partition_directory(topic.directory, key.partition)
            if directory in self._early and committed.offset > self._tables[directory].high_watermark:
                return True
        return False

    def _with_remote(self, cut: Cut) -> Cut | None:
        """`cut` with the remote segments of its tables, without those that retention has removed since."""
        for directory, here in cut.tables.items():
            if here.deleted:
                return None  # after the metadata log was read
            if here.tiered > here.log_start:
                there = self._remote(directory)
                if there.log_start > here.high_watermark:
                    return None
                cut.tables[directory] = from_log_start(here, max(here.log_start, there.log_start))
                cut.remote[directory] = there
        return cut

    def _remote(self, directory: str) -> Snapshot:
        if self._cluster.remote is None:
            raise CorruptLog(f"records of {directory} are in a remote root, and the metadata log names none")
        return self._cluster.remote.table(directory).snapshot


def going_on(here: Snapshot, revived: int) -> Snapshot:
    """`here` of a topic that was brought back for the time `revived`: whoever did so may have died before the
    table went on.
    """
    mark = 2 * revived
    return here if here.deletions >= mark else replace(here, txns=here.txns.after([Txn(TXN_DELETED, mark)]))


def from_log_start(here: Snapshot, log_start: int) -> Snapshot:
    """`here` with the log start `log_start`."""
    if log_start == here.log_start:
        return here
    return replace(
        here,
        segments=tuple(item for item in here.segments if item.last_offset >= log_start),
        txns=here.txns.after([Txn(TXN_LOG_START, log_start)]),
    )


def _opened(source: Store, directories: Sequence[str], clock: Clock) -> dict[str, Snapshot]:
    def opened(directory: str) -> Snapshot | None:
        with suppress(ObjectMissing):
            return Table(source, directory, clock).snapshot
        return None

    found = zip(directories, in_threads(opened, directories), strict=True)
    return {directory: snapshot for directory, snapshot in found if snapshot is not None}


def _followed(
    source: Store, directory: str, snapshot: Snapshot, is_end: Callable[[Commit], bool]
) -> tuple[Snapshot, bool]:
    """`snapshot` with the commits before the first for which `is_end` holds; and whether there is one."""
    while (commit := read_commit(source, directory, snapshot.version + 1)) is not None:
        if is_end(commit):
            return snapshot, True
        snapshot, _ = followed(directory, snapshot, commit)
    return snapshot, False


def _first(source: Store, directory: str) -> Snapshot:
    """Version 0 of a table that was just created. Raises ObjectMissing."""
    commit = read_commit(source, directory, 0)
    if commit is None:
        raise ObjectMissing(f"there is no table at {directory}")
    return first_snapshot(commit, directory)


def in_threads(act: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """The result of `act` for each item, in order; when one fails, no other begins."""
    pool = ThreadPoolExecutor(COPIED_AT_ONCE, thread_name_prefix="copy")
    try:
        yield from pool.map(act, items)
    finally:
        pool.shutdown(cancel_futures=True)
