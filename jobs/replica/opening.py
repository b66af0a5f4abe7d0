"""Where a standby is when its replication begins, which is all in its own files."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from jobs.replica.table_log import diverged
from jobs.replica.tables import Kind, tables_of
from log_tables.clock import Clock
from log_tables.cluster.metadata_log import TopicRecord, decode
from log_tables.cluster.root_location import check_finished, check_format
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.cluster.topic import is_internal
from log_tables.errors import Conflict, InvalidArgument, ObjectMissing
from log_tables.layout import (
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    commit_path,
)
from log_tables.record import Record, to_records
from log_tables.root.group_replay import records
from log_tables.segments import segment as segments
from log_tables.store.store import Store, overlap
from log_tables.table.commit import Add, Txn, read_data
from log_tables.table.snapshot import Snapshot, segment_of
from log_tables.table.table import Table
from log_tables.topic_table.topic_table import TopicTable

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """A table and where the standby has it: nowhere if `version` is negative. It `goes_on` if the original's
    log has that version. `txns` are those of it on which anything rests, or that rest on others.
    """

    directory: str
    kind: Kind
    version: int = -1
    end: int = 0
    goes_on: bool = False
    txns: Sequence[Txn] = ()
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A standby as replication finds it. `witness` is an object of the original that stays until it has a
    newer version of its metadata log.
    """

    mark: StandbyMark
    witness: str
    topics: list[TopicRecord] = field(default_factory=list)
    tables: list[Opened] = field(default_factory=list)


def check_apart(source: Store, target: str) -> None:
    """Raise InvalidArgument if one of the roots, of which `target` is a path or a URL, lies in the other."""
    if overlap(source.url, target):
        raise InvalidArgument("a root cannot follow itself; name another directory or URL")


def open_standby(source: Store, target: Store, clock: Clock, with_credentials: bool) -> Begun:
    """Look where `target` is, and mark it as a standby of `source` if it is empty.

    Raises InvalidArgument, Conflict for a root that is no standby of this one, Diverged, Damaged,
    StoreUnavailable.
    """
    check_apart(source, target.url)
    original = Table(source, METADATA_DIRECTORY, clock).snapshot
    check_format(original)
    check_finished(source)
    mark = _marked(source, target, original.metadata.id)
    topics = {record.name: record for record in _topics(source, original)}
    try:
        here = Table(target, METADATA_DIRECTORY, clock).snapshot
    except ObjectMissing:
        here = None
    if here is not None:
        topics = {record.name: record for record in _topics(target, here)}
    places = [(METADATA_DIRECTORY, Kind.METADATA)]
    places += [place for record in topics.values() if record.live for place in tables_of(record)]
    places += [place for record in topics.values() for place in deleted_tables(source, record)]
    if with_credentials and any(True for _ in source.list(f"{CREDENTIALS_DIRECTORY}/")):
        places.append((CREDENTIALS_DIRECTORY, Kind.CREDENTIALS))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="open") as pool:
        tables = [*pool.map(partial(opened, source, target, clock), places)]
    return Begun(mark, commit_path(METADATA_DIRECTORY, original.version), [*topics.values()], tables)


def _marked(source: Store, target: Store, cluster_id: str) -> StandbyMark:
    mark = read_mark(target)
    if mark is None:
        if any(True for _ in target.list("")):
            raise InvalidArgument(
                f"{target.url} is not empty, and no standby; name an empty directory or prefix"
            )
        mark = StandbyMark(source.url, cluster_id)
        put_mark(target, mark)
    if mark.is_promoted:
        raise Conflict(f"the standby at {target.url} was promoted; name an empty directory or prefix")
    if mark.cluster_id != cluster_id:
        raise Conflict(
            f"{target.url} is a standby of the cluster {mark.cluster_id}, and {source.url} is the cluster "
            f"{cluster_id}; name an empty directory or prefix"
        )
    return mark


def _topics(store: Store, metadata: Snapshot) -> Iterator[TopicRecord]:
    yield from topics_of(records(store, METADATA_DIRECTORY, metadata))


def topics_of(rows: Iterable[Record]) -> Iterator[TopicRecord]:
    """The topics in records of the metadata log. Raises CorruptLog."""
    for row in rows:
        record = decode(row)
        if isinstance(record, TopicRecord):
            yield record


def records_of(store: Store, directory: str, adds: Sequence[Add]) -> Iterator[Record]:
    """The records of the files of a table that are there, in order."""
    for segment in sorted(map(segment_of, adds), key=lambda segment: segment.base_offset):
        data = store.get(f"{directory}/{segment.path}")
        for batch in segments.read_bytes(data, directory, segment):
            yield from to_records(batch)


def deleted_tables(source: Store, record: TopicRecord) -> Iterator[tuple[str, Kind]]:
    """The tables of deleted topics of a name whose files are there still."""
    kind = Kind.GROUPS if record.name == CONSUMER_OFFSETS else Kind.PARTITION
    for number in record.deleted:
        directory = record.directory_of(number)
        for found in source.list_dirs(f"{directory}/"):
            name = found.rstrip("/")
            if name.rsplit("/", 1)[-1].startswith("partition="):
                yield name, kind
        if not is_internal(record.name):
            yield directory, Kind.FOLD


def opened(source: Store, target: Store, clock: Clock, place: tuple[str, Kind]) -> Opened:
    """Where the standby has the table of a place. Raises Diverged, Damaged, StoreUnavailable."""
    directory, kind = place
    try:
        if kind is Kind.FOLD:
            fold = TopicTable(target, directory, clock).snapshot
            version, end, txns, snapshot = fold.version, 0, [*fold.txns.values()], None
        else:
            snapshot = Table(target, directory, clock).snapshot
            version, end, txns = snapshot.version, snapshot.high_watermark, [*snapshot.txns.lasting()]
    except ObjectMissing:
        return Opened(directory, kind)
    there, here = (read_data(store, directory, version) for store in (source, target))
    if there is not None and here is not None and there != here:
        raise diverged(directory, version)
    return Opened(directory, kind, version, end, there is not None, txns, snapshot)
