"""A whole copy of a root that is in use: every table at a version, all versions of one moment.

Gateways go on writing meanwhile, so the order counts. First each table is looked at; then the groups' tables
are read to their ends, with the staged files that their pending transactions name; then all other tables are
followed, each up to its end or to the first commit of a transaction that the groups' tables do not know. So
whatever a group has committed is there, and of a transaction all or nothing. Then the segments are copied,
which stay for a day after they were merged or deleted; then the logs are written, that of the metadata last.

A table of the copy begins with one commit that holds all of it. Records in a remote root come along: the
copy never touches that of the original.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from log_tables import segment as segments
from log_tables.clock import Clock
from log_tables.cluster import Cluster
from log_tables.commit import Commit, put_commit, read_commit
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    CorruptSegment,
    InvalidArgument,
    ObjectMissing,
    StoreUnavailable,
)
from log_tables.home import remember
from log_tables.invariant import broken_state, classify
from log_tables.layout import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    PROPERTY_REMOTE_ROOT,
    TOPICS,
    TXN_TIERED,
    UNFINISHED_COPY,
    log_directory,
    partition_directory,
    topic_directory,
)
from log_tables.limits import (
    CONFIRMATION_MAX_AGE_S,
    COPIED_AT_ONCE,
    COPY_ATTEMPTS_MAX,
    COPY_LOOKS_MAX,
)
from log_tables.objects import Data
from log_tables.replayed import Replayed, applied
from log_tables.snapshot import Segment, Snapshot, first_snapshot
from log_tables.store import Store, open_store, overlap
from log_tables.table import Table, commit_info, new_table_id

Progress = Callable[[int, int], None]
"""Is told how many bytes of how many are in the copy."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_METADATA = partition_directory(topic_directory(CLUSTER_METADATA), 0)


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: records as their offsets count them, and bytes of their segments."""

    cluster_id: str
    topics: int
    tables: int
    segments: int
    records: int
    bytes: int


@dataclass(slots=True)
class _Cut:
    """The tables of the original at one moment. `remote` holds its snapshots of remote tables."""

    tables: dict[str, Snapshot] = field(default_factory=dict)
    remote: dict[str, Snapshot] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, Segment, bool]]:
        """(table, segment, whether it is in the remote root) of every file."""
        for directory, here in self.tables.items():
            there = self.remote.get(directory)
            if there is not None:
                yield from ((directory, item, True) for item in _moved(here, there, directory))
            yield from ((directory, item, False) for item in here.segments)


def copy_root(
    source: Store, target: Store, clock: Clock, keep_id: bool = False, progress: Progress = lambda *_: None
) -> Copied:
    """Copy the root of `source`, in use or not, to that of `target`: empty, or an unfinished copy.

    The copy has a cluster id of its own, unless `keep_id`, and no gateways on its list. Raises
    InvalidArgument for a root that cannot be copied to or from, Damaged when something of the original is,
    StoreUnavailable.
    """
    _prepare(source, target)
    for _ in range(COPY_ATTEMPTS_MAX):
        cut = _cut(source, target, clock)
        if cut is not None and _copy_files(source, target, cut, clock, progress):
            return _finish(target, cut, clock, keep_id)
    raise StoreUnavailable(
        "what is copied changed under the copy each time, or took more than a day; begin it again, and it "
        "goes on where it is"
    )


def _prepare(source: Store, target: Store) -> None:
    """Mark `target` as an unfinished copy. Raises InvalidArgument when it is something else."""
    if overlap(source.url, target.url):
        raise InvalidArgument("a root cannot be copied into itself; name another place")
    try:
        begun = target.get(UNFINISHED_COPY).decode(errors="replace")
    except ObjectMissing:
        if any(True for _ in target.list("")):
            raise InvalidArgument(f"{target.url} is not empty; name an empty place for the copy") from None
        target.put(UNFINISHED_COPY, source.url.encode())
        return
    if begun != source.url:
        raise InvalidArgument(f"{target.url} holds an unfinished copy of {begun}; name an empty place")
    for item in [*target.list(f"{TOPICS}/")]:
        if log_directory("") in item.path:  # of a table that was written when the copy was interrupted
            target.delete(item.path)


def _cut(source: Store, target: Store, clock: Clock) -> _Cut | None:
    """The tables of one moment; None when finding them took too long. Staged files are in `target` then."""
    began = clock.boottime()
    cluster = Cluster.open(source, clock, create=False)
    before = _opened(source, _directories(cluster), clock)
    offsets = _directories(cluster, CONSUMER_OFFSETS)
    groups, cut = Replayed(), _Cut()
    for directory in offsets:
        cut.tables[directory] = _groups(source, target, directory, before[directory], groups)
    cluster.refresh(wait=True)
    if _directories(cluster, CONSUMER_OFFSETS) != offsets:
        return None  # the first group came meanwhile
    cut.tables[_METADATA] = cluster.metadata_log.partition.snapshot

    def followed(directory: str) -> Snapshot:
        begin = before.get(directory) or _first(source, directory)
        return _followed(source, directory, begin, lambda commit: _is_later(commit, groups))

    others = [directory for directory in _directories(cluster) if directory not in cut.tables]
    try:
        cut.tables.update(zip(others, _in_threads(followed, others), strict=True))
    except ObjectMissing:
        return None  # a topic was deleted and swept
    if any(here.deleted for here in cut.tables.values()):
        return None  # a topic was deleted after the metadata log was read
    for directory, here in cut.tables.items():
        if here.tiered > here.log_start:
            cut.remote[directory] = _remote(cluster, directory)
    return cut if clock.boottime() - began < CONFIRMATION_MAX_AGE_S else None


def _directories(cluster: Cluster, only: str = "") -> list[str]:
    """The tables of the live topics, or of the one called `only`."""
    return [
        partition_directory(topic.directory, index)
        for topic in cluster.topics(include_internal=True)
        if topic.name == (only or topic.name)
        for index in range(topic.partition_count)
    ]


def _opened(source: Store, directories: Sequence[str], clock: Clock) -> dict[str, Snapshot]:
    def opened(directory: str) -> Snapshot | None:
        with suppress(ObjectMissing):
            return Table(source, directory, clock).snapshot
        return None

    found = zip(directories, _in_threads(opened, directories), strict=True)
    return {directory: snapshot for directory, snapshot in found if snapshot is not None}


def _groups(source: Store, target: Store, directory: str, begin: Snapshot, groups: Replayed) -> Snapshot:
    """A table of groups read to its end, all whose pending transactions have their staged files in `target`.

    A file that is gone was applied: the log says so further on.
    """
    snapshot, there = begin, set[str]()
    for _ in range(COPY_LOOKS_MAX):
        snapshot = _followed(source, directory, snapshot, lambda _: False)
        groups.follow(source, directory, snapshot)
        wanted = groups.staged().keys() - there
        try:
            for path in wanted:
                _put(target, path, source.get(path))
                there.add(path)
        except ObjectMissing:
            continue
        return snapshot
    raise CorruptLog(
        f"staged files of transactions in {directory} are missing, of which the log says that they wait; "
        "look with `lakelog fsck`"
    )


def _is_later(commit: Commit, groups: Replayed) -> bool:
    """Whether `commit` has records of a transaction that `groups` do not know."""
    return any(epoch > groups.epochs.get(producer, -1) for producer, epoch in applied(commit.txns))


def _followed(
    source: Store, directory: str, snapshot: Snapshot, is_end: Callable[[Commit], bool]
) -> Snapshot:
    """`snapshot` with the commits after it, up to the first of which `is_end` is true."""
    while (commit := read_commit(source, directory, snapshot.version + 1)) is not None:
        if is_end(commit):
            break
        classify(directory, snapshot, commit)
        snapshot = snapshot.apply(commit)
    return snapshot


def _first(source: Store, directory: str) -> Snapshot:
    """A table that was made a moment ago, as it began. Raises ObjectMissing."""
    commit = read_commit(source, directory, 0)
    if commit is None:
        raise ObjectMissing(f"there is no table at {directory}")
    return first_snapshot(commit, directory)


def _remote(cluster: Cluster, directory: str) -> Snapshot:
    if cluster.remote is None:
        raise CorruptLog(f"records of {directory} are in a remote root, and the metadata log names none")
    return cluster.remote.table(directory).snapshot


def _moved(here: Snapshot, there: Snapshot, directory: str) -> tuple[Segment, ...]:
    """The segments of the remote table `there` that come before those of `here`."""
    found = there.between(here.log_start, here.tiered)
    if found and found[-1].last_offset >= here.tiered:
        raise CorruptLog(
            f"segment {found[-1].path} of the remote table {directory} reaches beyond offset {here.tiered}, "
            "where the local one begins; run `lakelog maintain` on the original, and copy it then"
        )
    return found


def _copy_files(source: Store, target: Store, cut: _Cut, clock: Clock, progress: Progress) -> bool:
    """Whether every segment of `cut` is in `target` now; not when one is gone from the original.

    Each is read as a reader reads it. Raises CorruptSegment.
    """
    files = [*cut.files()]
    remote = _remote_store(source, cut, clock) if cut.remote else source
    total, done = sum(item.size for _, item, _ in files), 0

    def copied(file: tuple[str, Segment, bool]) -> int:
        directory, item, is_remote = file
        path = f"{directory}/{item.path}"
        with suppress(ObjectMissing):
            if target.head(path).size == item.size:
                return item.size  # by the copy that was interrupted
        data = (remote if is_remote else source).get(path)
        if len(data) != item.size:
            raise CorruptSegment(
                f"segment {path} has {len(data)} bytes, the log says {item.size}; look with `lakelog fsck`"
            )
        segments.check(data, directory, item)
        _put(target, path, data)
        return item.size

    progress(0, total)
    try:
        for size in _in_threads(copied, files):
            done += size
            progress(done, total)
    except ObjectMissing:
        return False
    return True


def _remote_store(source: Store, cut: _Cut, clock: Clock) -> Store:
    url = cut.tables[_METADATA].metadata.configuration[PROPERTY_REMOTE_ROOT]
    return open_store(url, source.options, create=False, clock=clock)


def _put(target: Store, path: str, data: Data) -> None:
    """Put an object that an interrupted copy may have begun to put."""
    try:
        target.put_new(path, data)
    except AlreadyExists:
        target.put(path, data)


def _finish(target: Store, cut: _Cut, clock: Clock, keep_id: bool) -> Copied:
    """Write the logs, that of the metadata last, and take the original's gateways off the list."""
    tables = {directory: _own(cut, directory) for directory in cut.tables}
    if not keep_id:
        metadata = tables[_METADATA].metadata
        tables[_METADATA] = replace(
            tables[_METADATA], metadata=msgspec.structs.replace(metadata, id=new_table_id(clock))
        )
    for directory in sorted(tables, key=lambda directory: directory == _METADATA):
        _write(target, directory, tables[directory], clock)
    cluster = Cluster.open(target, clock, create=False)
    strike_off(cluster)
    cluster.metadata_log.partition.resign()
    remember(target)
    target.delete(UNFINISHED_COPY)
    held = [item for snapshot in tables.values() for item in snapshot.segments]
    return Copied(
        cluster.cluster_id,
        len(cluster.topics()),
        len(tables),
        len(held),
        sum(item.records for item in held),
        sum(item.size for item in held),
    )


def strike_off(cluster: Cluster) -> None:
    """Take every gateway off the list of `cluster`: none of them is on this root."""
    for record in [*cluster.metadata_log.brokers.values()]:
        cluster.metadata_log.remove_broker(record)


def _own(cut: _Cut, directory: str) -> Snapshot:
    """A table as the copy has it: all in one place, without what was removed. Raises CorruptLog."""
    here, there = cut.tables[directory], cut.remote.get(directory)
    moved = () if there is None else _moved(here, there, directory)
    configuration = {
        name: value
        for name, value in here.metadata.configuration.items()
        if directory != _METADATA or name != PROPERTY_REMOTE_ROOT
    }
    made = replace(
        here,
        metadata=msgspec.structs.replace(here.metadata, configuration=configuration),
        segments=(*moved, *here.segments),
        txns={app_id: txn for app_id, txn in here.txns.items() if app_id != TXN_TIERED},
        tombstones={},
    )
    broken = broken_state(made)
    if broken:
        raise CorruptLog(f"{directory} cannot be copied: {'; '.join(broken)}; look with `lakelog fsck`")
    return made


def _write(target: Store, directory: str, snapshot: Snapshot, clock: Clock) -> None:
    """Begin the log of a table with one commit that holds all of `snapshot`."""
    commit = Commit(
        commit_info(clock, "CLONE"),
        tuple(snapshot.txns.values()),
        tuple(item.add(data_change=True) for item in snapshot.segments),
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
    )
    if put_commit(target, directory, 0, commit, clock) is not None:
        raise InvalidArgument(f"another process copies to {target.url}; let one of them do it")


def _in_threads(act: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """What `act` gives for each item, in order; what has not begun when one fails is left."""
    pool = ThreadPoolExecutor(COPIED_AT_ONCE, thread_name_prefix="copy")
    try:
        yield from pool.map(act, items)
    finally:
        pool.shutdown(cancel_futures=True)
