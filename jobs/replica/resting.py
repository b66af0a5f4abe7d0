"""The causes of a commit that was read, which its table and its records say."""

from collections.abc import Iterator, Sequence

from jobs.replica.causes import Cause, Schemas, Version, data_causes, fold_causes, group_causes
from jobs.replica.opening import topics_of
from jobs.replica.table_log import ReadCommit
from jobs.replica.tables import Kind, Standing, TableCopy, Waiting, tables_of
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.record import Record, to_records
from log_tables.segments import segment as segments
from log_tables.store.store import Store
from log_tables.table.snapshot import segment_of


def waiting(standing: Standing, target: Store, copy: TableCopy, read: ReadCommit, now: float) -> Waiting:
    """A commit that was read at `now`, with its causes. `standing` takes what it says of topics and groups.

    Raises CorruptLog, and what `target` raises, from which come files that are not held.
    """
    match copy.kind:
        case Kind.PARTITION:
            causes = [Schemas()] if read.commit.adds else list[Cause]()
            return Waiting(read, now, [*causes, *data_causes(read.commit, read.version)])
        case Kind.FOLD:
            return Waiting(read, now, [*fold_causes(read.commit.txns, copy.directory)])
        case Kind.GROUPS:
            rows, places = _new_rows(target, copy, read), standing.topics.places
            causes, facts = group_causes(rows, copy.directory, standing.groups, places)
            return Waiting(read, now, [*causes, *data_causes(read.commit, read.version)], facts)
        case Kind.METADATA:
            causes, gone = topic_causes(standing, [*topics_of(_new_rows(target, copy, read))])
            return Waiting(read, now, causes, gone=gone)
        case Kind.CREDENTIALS:
            return Waiting(read, now, [])


def topic_causes(standing: Standing, topics: Sequence[TopicRecord]) -> tuple[list[Cause], set[str]]:
    """The tables that topics name, which are looked at from now on; and the directories that are gone."""
    causes, gone = list[Cause](), set[str]()
    for record in topics:
        gone |= standing.topics.take(record)
        for directory, kind in tables_of(record) if record.live else ():
            standing.added(directory, kind)
            causes.append(Version(directory, 0))
    return causes, gone


def _new_rows(target: Store, copy: TableCopy, read: ReadCommit) -> Iterator[Record]:
    """The records that a commit appends."""
    if read.high_watermark <= (copy.end if copy.is_others else copy.seen_end):
        return
    for add in read.commit.adds:
        data = read.files.get(add.path)
        if data is None:
            data = target.get(f"{copy.directory}/{add.path}")
        for batch in segments.read_bytes(data, copy.directory, segment_of(add)):
            yield from to_records(batch)
