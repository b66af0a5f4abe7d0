"""The state on which the jobs plan: one value for each partition of the root."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import COMPACT, TopicConfig
from log_tables.errors import InvalidArgument, LakelogError, StoreUnavailable, UnknownTopic
from log_tables.layout import CLUSTER_METADATA
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot, check_reaches
from log_tables.store.store import Store
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table

_COMPACTED = TopicConfig.parse({"cleanup.policy": COMPACT})

OPENED_AT_ONCE = 16
"""Partitions that are opened, or changed without workers, at once: each waits for the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as it is when a run begins.

    `checkpointed` is the version of its newest checkpoint. `remote` is its table in the remote root, if it
    has one, with `remote_checkpointed`; `unreachable` says why that could not be read. `tidied_ms` is when
    this process last tidied up its directory (milliseconds since 1970).
    """

    topic: str
    partition: int
    directory: str
    config: TopicConfig
    snapshot: Snapshot
    checkpointed: int = 0
    remote: Snapshot | None = None
    remote_checkpointed: int = 0
    unreachable: str = ""
    tidied_ms: int | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of its segments in order of offset, the remote ones first."""
        here = self.snapshot
        there = () if self.remote is None else self.remote.between(here.log_start, here.tiered)
        return (*there, *here.segments)


@dataclass(frozen=True, slots=True)
class UnreadablePartition:
    """A partition whose table cannot be opened, with the reason."""

    topic: str
    partition: int
    reason: str


def look(
    cluster: Cluster, tidied: Mapping[str, int] = MappingProxyType({})
) -> tuple[list[PartitionState], list[UnreadablePartition]]:
    """Every partition of the root as it is now, also of internal topics, by name.

    `tidied` gives the times at which directories were last tidied up (milliseconds since 1970). Partitions
    that cannot be opened, or whose remote table cannot, are in the second list. Raises what `Cluster.refresh`
    raises when the metadata log cannot be read.
    """
    cluster.refresh(wait=True)
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        found = [*pool.map(lambda at: _look(cluster, at[0], at[1], tidied), _partitions(cluster))]
    states = [state for state in found if isinstance(state, PartitionState)]
    # A topic that was deleted since the metadata log was read is left out.
    unreadable = [state for state in found if isinstance(state, UnreadablePartition)]
    cut_off = [UnreadablePartition(s.topic, s.partition, s.unreachable) for s in states if s.unreachable]
    return states, [*unreadable, *cut_off]


def partition_of(cluster: Cluster, topic: str, partition: int, directory: str) -> Partition:
    """The partition of a step. Raises UnknownTopic when its topic was deleted or re-created since the
    plan.
    """
    if topic == CLUSTER_METADATA:
        return cluster.metadata_log.partition
    log = cluster.topic(topic).partition(partition)
    if log.directory != directory:
        raise UnknownTopic(f"topic {topic!r} was deleted and re-created; the next run looks at it")
    return log


def table_of(cluster: Cluster, topic: str, partition: int, directory: str, remote: bool) -> Table:
    """The table of a step, in the remote root if `remote`.

    Raises UnknownTopic, StoreUnavailable, InvalidArgument without a remote root, CorruptLog when another root
    owns it.
    """
    if not remote:
        return partition_of(cluster, topic, partition, directory).table
    root = remote_of(cluster)
    root.check_owned()
    return root.table(directory)


def store_of(cluster: Cluster, remote: bool) -> Store:
    """The store of the root, or of the remote one. Raises StoreUnavailable, InvalidArgument."""
    return remote_of(cluster).store if remote else cluster.store


def remote_of(cluster: Cluster) -> RemoteRoot:
    """The remote root of the cluster. Raises InvalidArgument when it has none."""
    if cluster.remote is None:
        raise InvalidArgument("this root has no remote root; set one with `lakelog maintain --remote-root`")
    return cluster.remote


def _partitions(cluster: Cluster) -> Iterator[tuple[str, int]]:
    yield CLUSTER_METADATA, 0
    for topic in cluster.topics(include_internal=True):
        for partition in range(topic.partition_count):
            yield topic.name, partition


def _look(
    cluster: Cluster, topic: str, partition: int, tidied: Mapping[str, int]
) -> PartitionState | UnreadablePartition | None:
    try:
        if topic == CLUSTER_METADATA:
            log, config = cluster.metadata_log.partition, _COMPACTED
        else:
            found = cluster.topic(topic)
            log, config = found.partition(partition), found.config
        log.refresh(wait=True)
        log.prune()
        table = log.table
        checkpointed = table.find_checkpoint() if table.checkpoint_due() else table.checkpointed
    except UnknownTopic:
        return None
    except LakelogError as error:
        return UnreadablePartition(topic, partition, error.message)
    state = PartitionState(
        topic=topic,
        partition=partition,
        directory=log.directory,
        config=config,
        snapshot=log.snapshot,
        checkpointed=checkpointed,
        tidied_ms=tidied.get(log.directory),
    )
    return _with_remote(cluster, state) if config.remote_storage or state.snapshot.tiered else state


def _with_remote(cluster: Cluster, state: PartitionState) -> PartitionState:
    """`state` with the remote table of its partition, or the reason why that cannot be read."""
    try:
        remote = remote_of(cluster)
        remote.check_owned()  # nothing is planned for a remote root of another root
        table = remote.find(state.directory)
        if table is not None:
            check_reaches(table.snapshot, state.snapshot, state.directory)
        elif state.snapshot.tiered > state.snapshot.log_start:
            raise StoreUnavailable(f"the remote root has no table {state.directory}; mount or restore it")
    except LakelogError as error:
        return replace(state, unreachable=error.message)
    if table is None:
        return state
    return replace(state, remote=table.snapshot, remote_checkpointed=table.checkpointed)
