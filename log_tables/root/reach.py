"""How far back each topic can be had (`lakelog root copy --as-of`), by the files that are there."""

from collections.abc import Iterator
from dataclasses import dataclass

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.errors import InvalidArgument, ObjectMissing
from log_tables.layout import CLUSTER_METADATA, METADATA_DIRECTORY, partition_directory
from log_tables.root.cut import in_threads
from log_tables.root.group_replay import records
from log_tables.root.past import TablePast
from log_tables.store.store import Store


@dataclass(frozen=True, slots=True)
class Reach:
    """A topic, and the time since which all of it is there; None if part of it is gone, as `why` says.

    Times are milliseconds since 1970, by the clocks of the gateways. `deleted_ms` is that of its deletion;
    None for a topic that is there.
    """

    topic: str
    partitions: int
    since_ms: int | None
    deleted_ms: int | None = None
    why: str = ""


def reaches(source: Store, clock: Clock) -> list[Reach]:
    """The reach of each topic of the root of `source`, lakelog's own and deleted ones among them.

    Reads the logs of all tables. Raises InvalidArgument, Damaged, StoreUnavailable.
    """
    cluster = Cluster.open(source, clock, create=False)
    metadata = cluster.metadata_log.partition.snapshot
    latest: dict[str, TopicRecord] = {}
    for record in records(source, METADATA_DIRECTORY, metadata):
        found = decode_record(record)
        if isinstance(found, TopicRecord):
            latest[found.name] = found
    own = Reach(CLUSTER_METADATA, 1, TablePast(source, METADATA_DIRECTORY).reach())
    return [own, *(each for _, topic in sorted(latest.items()) for each in _of(source, topic))]


def _of(source: Store, topic: TopicRecord) -> Iterator[Reach]:
    for incarnation, deleted_ms in sorted(topic.deleted.items()):
        if incarnation != topic.incarnation:
            yield _reach(source, topic, incarnation, deleted_ms)
    yield _reach(source, topic, topic.incarnation, topic.deleted.get(topic.incarnation))


def _reach(source: Store, topic: TopicRecord, incarnation: int, deleted_ms: int | None) -> Reach:
    directory = topic.directory_of(incarnation)
    names = [partition_directory(directory, partition) for partition in range(topic.partitions)]

    def since(name: str) -> int:
        return TablePast(source, name).reach()

    try:
        return Reach(topic.name, topic.partitions, max(in_threads(since, names)), deleted_ms)
    except (ObjectMissing, InvalidArgument) as error:
        return Reach(topic.name, topic.partitions, None, deleted_ms, str(error))
