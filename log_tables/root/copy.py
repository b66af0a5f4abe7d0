"""A whole copy of a root that is in use: each table at a version, all of one moment (cut.py).

The segments of these versions are copied, the small ones first: a merge replaces those soonest, and an hour
later they are gone. If one is gone all the same, the copy looks again, and keeps what it has. Then the logs
are written, that of the metadata last: a table of the copy begins with one commit that holds all of it.
Records in a remote root are copied too, so that the copy never touches the original's remote root.

An object at the top of the copy marks it as unfinished until the end, and no gateway serves such a root.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.admin.audit_spill import spilled
from log_tables.cluster.admin.producer_fence import append_to_groups, fence_producers
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import note_location
from log_tables.cluster.topic_fold import fold
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    CorruptSegment,
    InvalidArgument,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
)
from log_tables.layout import (
    HOME,
    METADATA_DIRECTORY,
    PROPERTY_REMOTE_OWNER,
    PROPERTY_REMOTE_ROOT,
    SCHEMAS,
    TOPICS,
    TXN_TIERED,
    UNFINISHED_COPY,
    is_secret,
    log_directory,
)
from log_tables.limits import COPY_ATTEMPTS_MAX
from log_tables.record import Record
from log_tables.root.cut import Cut, cut_root, in_threads
from log_tables.root.listed_brokers import strike_off
from log_tables.root.past_cut import cut_past
from log_tables.segments import segment as segments
from log_tables.store.store import Store, open_store, overlap
from log_tables.table.commit import Commit, put_commit
from log_tables.table.delta_log import commit_info, new_table_id
from log_tables.table.invariant import broken_state, gaps
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.tombstones import Tombstones
from log_tables.topic_table.topic_table import create_topic_table

Progress = Callable[[int, int], None]
"""Called with the bytes that are in the copy, and with those of the original."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The size of a copy: its records, as their offsets count them, and the bytes of their segments."""

    cluster_id: str
    topics: int
    tables: int
    segments: int
    records: int
    bytes: int
    as_of_ms: int | None = None
    """The moment of which it is, milliseconds since 1970; None for the time at which it was made."""


def copy_root(
    source: Store,
    target: Store,
    clock: Clock,
    keep_id: bool = False,
    progress: Progress = lambda *_: None,
    with_credentials: bool = False,
    as_of_ms: int | None = None,
) -> CopyResult:
    """Copy the root of `source`, in use or not, to `target`, which is empty or an unfinished copy.

    The copy has a new cluster id, unless `keep_id`, and no gateways on its list. It has the hashes of keys
    and the verifiers of users only `with_credentials`. Raises InvalidArgument for
    roots that cannot be copied from or to, Damaged when the original is damaged, StoreUnavailable.

    With `as_of_ms`, milliseconds since 1970 by the clocks of the gateways, it is of that moment, or of the
    last one before at which all tables agree. Raises InvalidArgument where that is not there any more.
    """
    _prepare(source, target, with_credentials)
    if as_of_ms is not None:
        past = cut_past(source, target, clock, as_of_ms, with_credentials)
        if not _copy_files(source, target, past.cut, clock, progress):
            raise InvalidArgument(
                "a file of that moment was removed while it was copied; run the command again, and it says "
                "which, or name a later time"
            )
        finished = _finish(source, target, past.cut, clock, keep_id, past.ends)
        return replace(finished, as_of_ms=past.time_ms)
    for _ in range(COPY_ATTEMPTS_MAX):
        events = _spilled(source)
        cut = cut_root(source, target, clock, with_credentials)
        if cut is not None and _copy_files(source, target, cut, clock, progress):
            for path, data in events.items():
                target.put(path, data)
            return _finish(source, target, cut, clock, keep_id)
    raise StoreUnavailable(
        "topics of the original were created or deleted during each attempt, or segments were merged and "
        "deleted before it came to them; run the command again, which continues where it stopped, or raise "
        "compaction.file.delete.delay.ms of its topics for as long as it takes"
    )


def open_target(source: Store, url: str, options: Mapping[str, str], clock: Clock) -> Store:
    """The store at `url`, to copy `source` to.

    A directory that is created for it is marked as an unfinished copy from its first moment on, so that no
    gateway begins a root in the directory of a copy that was killed. Raises InvalidArgument,
    StoreUnavailable.
    """
    _check_apart(source, url)
    return open_store(url, options, clock=clock, first=(UNFINISHED_COPY, source.url.encode()))


def _check_apart(source: Store, url: str) -> None:
    if overlap(source.url, url):
        raise InvalidArgument("a root cannot be copied into itself; name another directory or URL")


def _prepare(source: Store, target: Store, with_credentials: bool) -> None:
    """Mark `target` as an unfinished copy. Raises InvalidArgument when it is something else."""
    _check_apart(source, target.url)
    there = {item.path for item in target.list("")}
    if not there:
        target.put(UNFINISHED_COPY, source.url.encode())
        return
    if UNFINISHED_COPY not in there:
        raise InvalidArgument(f"{target.url} is not empty; name an empty directory or prefix for the copy")
    begun = target.get(UNFINISHED_COPY).decode(errors="replace")
    if begun != source.url:
        raise InvalidArgument(
            f"{target.url} holds an unfinished copy of {begun}; name an empty directory or prefix"
        )
    if HOME in there:
        raise InvalidArgument(
            f"{target.url} is marked as an unfinished copy, and was in use; name an empty directory or prefix"
        )
    for path in there:
        is_log = path.startswith(f"{TOPICS}/") and log_directory("") in path
        if is_log or (is_secret(path) and (log_directory("") in path or not with_credentials)):
            target.delete(path)  # it was written before the copy was interrupted


def _copy_files(source: Store, target: Store, cut: Cut, clock: Clock, progress: Progress) -> bool:
    """Copy the segments of `cut`; returns False when one is gone from the original.

    Each is checked as readers check it, also if it is in the target already. Raises CorruptSegment.
    """
    files = sorted(cut.files(), key=lambda file: file[1].size)
    remote = _remote_store(source, cut, clock) if cut.remote else source
    total, done = sum(item.size for _, item, _ in files), 0

    def copied(file: tuple[str, Segment, bool]) -> int:
        directory, item, is_remote = file
        if not _is_there(target, directory, item):
            path = f"{directory}/{item.path}"
            data = (remote if is_remote else source).get(path)
            _check(data, directory, item)
            target.put(path, data)  # a put shows the file once all of it is durable
        return item.size

    progress(0, total)
    try:
        for size in in_threads(copied, files):
            done += size
            progress(done, total)
    except ObjectMissing:
        return False
    return True


def _is_there(target: Store, directory: str, item: Segment) -> bool:
    """Whether an interrupted copy has put the whole file of `item`."""
    with suppress(ObjectMissing, CorruptSegment):
        path = f"{directory}/{item.path}"
        if target.head(path).size == item.size:
            _check(target.get(path), directory, item)
            return True
    return False


def _check(data: bytes, directory: str, item: Segment) -> None:
    if len(data) != item.size:
        raise CorruptSegment(
            f"segment {directory}/{item.path} has {len(data)} bytes, and the log says {item.size}; run "
            "`lakelog fsck`"
        )
    segments.check(data, directory, item)


def _remote_store(source: Store, cut: Cut, clock: Clock) -> Store:
    url = cut.tables[METADATA_DIRECTORY].metadata.configuration[PROPERTY_REMOTE_ROOT]
    return open_store(url, source.options, create=False, clock=clock)


def _finish(
    source: Store,
    target: Store,
    cut: Cut,
    clock: Clock,
    keep_id: bool,
    ends: Mapping[str, Sequence[Record]] | None = None,
) -> CopyResult:
    """Write the logs, that of the metadata last, append `ends` by their tables, and take the original's
    gateways off the list.
    """
    tables = {directory: _own(cut, directory) for directory in cut.tables}
    if not keep_id:
        metadata = tables[METADATA_DIRECTORY].metadata
        tables[METADATA_DIRECTORY] = replace(
            tables[METADATA_DIRECTORY], metadata=msgspec.structs.replace(metadata, id=new_table_id(clock))
        )
    _copy_schemas(source, target)
    for directory in sorted(tables, key=lambda directory: directory == METADATA_DIRECTORY):
        _write(target, directory, tables[directory], clock)
    cluster = Cluster.open(target, clock, create=False)
    for topic in cluster.topics():
        with suppress(AlreadyExists):
            create_topic_table(target, topic.directory, clock)
        fold(topic)
    cluster.begin_log_epoch()
    append_to_groups(cluster, ends or {})
    fence_producers(cluster)
    strike_off(cluster)
    cluster.metadata_log.partition.resign()
    target.delete(UNFINISHED_COPY)
    target.make_durable("")  # a copy that is known to be whole must not become unfinished again
    with suppress(StoreUnavailable, OutcomeUnknown):  # it is whole, and its first gateway looks where it is
        note_location(target)
    held = [item for snapshot in tables.values() for item in snapshot.segments]
    return CopyResult(
        cluster.cluster_id,
        len(cluster.topics()),
        len(tables),
        len(held),
        sum(item.records for item in held),
        sum(item.size for item in held),
    )


def _copy_schemas(source: Store, target: Store) -> None:
    """Copy the schemas, of which the newest are older than any segment that names them."""

    def copied(path: str) -> None:
        with suppress(ObjectMissing):  # a file that an operator has just removed
            target.put(path, source.get(path))

    for _ in in_threads(copied, [item.path for item in source.list(f"{SCHEMAS}/")]):
        pass


def _spilled(source: Store) -> dict[str, bytes]:
    """The audit events that wait to be appended, as of before a cut: each is in its tables, or here, or both,
    and then the tables know the stamp by which it is not appended again.
    """
    found = {}
    for item in spilled(source):
        with suppress(ObjectMissing):  # it has just been appended
            found[item.path] = source.get(item.path)
    return found


def _own(cut: Cut, directory: str) -> Snapshot:
    """A table of the copy: all segments in one root, and no removed files. Raises CorruptLog."""
    here = cut.tables[directory]
    left = (PROPERTY_REMOTE_ROOT, PROPERTY_REMOTE_OWNER) if directory == METADATA_DIRECTORY else ()
    configuration = {name: value for name, value in here.metadata.configuration.items() if name not in left}
    made = replace(
        here,
        metadata=msgspec.structs.replace(here.metadata, configuration=configuration),
        segments=(*cut.moved(directory), *here.segments),
        txns=here.txns.without(TXN_TIERED),
        tombstones=Tombstones(),
    )
    broken = [*broken_state(made), *gaps(made, made.whole_from, made.high_watermark)]
    if broken:
        raise CorruptLog(f"{directory} cannot be copied: {'; '.join(broken)}; run `lakelog fsck`")
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
    target.make_durable(directory)  # the names of files that an interrupted copy put
    if put_commit(target, directory, 0, commit, clock) is not None:
        raise InvalidArgument(f"another process copies to {target.url}; let one of them do it")
