"""The state on which the jobs plan: one value for each partition of the root."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, takewhile
from types import MappingProxyType

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.merge_plan import merge_debt
from log_tables.cluster.metadata_history import metadata_configs
from log_tables.cluster.topic import Topic, is_internal
from log_tables.cluster.topic_fold import fold_partitions, fold_remote
from log_tables.columns.columns_tag import missing_schemas
from log_tables.errors import InvalidArgument, LakelogError, StoreUnavailable, TopicDeleted, UnknownTopic
from log_tables.layout import CLUSTER_METADATA, partition_directory
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot, check_reaches
from log_tables.schemas.schema import NO_SCHEMAS, SchemaId, Schemas
from log_tables.store.store import Store
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table

NOT_FOLDED = 2**63 - 1
"""The end of the fold for a topic without a table over it: internal ones."""

OPENED_AT_ONCE = 16
"""Partitions that are opened, or changed without workers, at once: each waits for the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as it is when a run begins.

    `checkpointed` is the version of its newest checkpoint. `remote` is its table in the remote root, if it
    has one, with `remote_checkpointed`; `unreachable` says why that could not be read. `tidied_ms` is when
    this process last tidied up its directory (milliseconds since 1970). `folded` is the offset up to which
    the table over the topic has the partition, `remote_folded` the same of the one in the remote root.
    `schemas` are those that the values of the topic name. It is `mirrored` while a mirror makes its records.
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
    folded: int = NOT_FOLDED
    remote_folded: int = NOT_FOLDED
    schemas: Schemas = NO_SCHEMAS
    mirrored: bool = False

    @property
    def rewritable(self) -> tuple[Segment, ...]:
        """The first segments of the table that may be rewritten or moved: a file that the table over the
        topic does not have yet must come there as it was appended.
        """
        return tuple(takewhile(lambda segment: segment.last_offset < self.folded, self.snapshot.segments))

    @property
    def remote_rewritable(self) -> tuple[Segment, ...]:
        """The first segments of the remote table that may be rewritten, for the same reason."""
        found = () if self.remote is None else self.remote.segments
        return tuple(takewhile(lambda segment: segment.last_offset < self.remote_folded, found))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of its segments in order of offset, the remote ones first."""
        here = self.snapshot
        there = () if self.remote is None else self.remote.between(here.log_start, here.tiered)
        return (*there, *here.segments)


def worst_debt(states: Iterable[PartitionState], now_ms: int) -> int:
    """The most files that merges would remove from one partition at `now_ms`, milliseconds since 1970."""
    return max((merge_debt(each.snapshot, each.config, now_ms) for each in states), default=0)


@dataclass(frozen=True, slots=True)
class UnreadablePartition:
    """A partition whose table cannot be opened, with the reason."""

    topic: str
    partition: int
    reason: str

    @property
    def offsets(self) -> None:
        """None: nothing is changed."""
        return None


def look(
    cluster: Cluster,
    tidied: Mapping[str, int] = MappingProxyType({}),
    change: bool = True,
    topic: str | None = None,
) -> tuple[list[PartitionState], list[UnreadablePartition]]:
    """Every partition of the root as it is now, also of internal topics, by name; or those of one `topic`.

    The tables over topics are folded first, and those in the remote root with what was found there; if the
    run may not `change` anything, they are taken to be.
    `tidied` gives the times at which directories were last tidied up (milliseconds since 1970). Partitions
    that cannot be opened, or whose remote table cannot, are in the second list. Raises what `Cluster.refresh`
    raises when the metadata log cannot be read.
    """
    cluster.refresh(wait=True)
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        topics = [each for each in cluster.topics() if topic in (None, each.name)]
        folds = [*pool.map(partial(_fold, change=change), topics)]
        partitions = [at for at in _partitions(cluster) if topic in (None, at[0])]
        found = [*pool.map(lambda at: _look_at_both(cluster, at[0], at[1], tidied), partitions)]
        ends = {directory: end for _, found, _ in folds for directory, end in found.items()}
        states = [_folded(state, ends) for state in found if isinstance(state, PartitionState)]
        if change:
            remote = [*pool.map(partial(_fold_remote, cluster), _tiered(states))]
            there = {directory: end for _, found, _ in remote for directory, end in found.items()}
            states = [replace(s, remote_folded=there.get(s.directory, 0)) if s.remote else s for s in states]
            folds += remote
    # A topic that was deleted since the metadata log was read is left out.
    unreadable = [state for state in found if isinstance(state, UnreadablePartition)]
    cut_off = [UnreadablePartition(s.topic, s.partition, s.unreachable) for s in states if s.unreachable]
    stuck = [UnreadablePartition(name, 0, reason) for name, _, reason in folds if reason]
    return states, [*unreadable, *cut_off, *stuck]


def glance(cluster: Cluster) -> list[PartitionState]:
    """Every partition of the root that can be read, as it is now here: nothing is folded, and remote tables
    are left alone. Raises as `look`.
    """
    cluster.refresh(wait=True)
    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        found = [*pool.map(lambda at: _look(cluster, at[0], at[1], {}), _partitions(cluster))]
    return [state for state in found if isinstance(state, PartitionState)]


def fold_changed(cluster: Cluster, names: Iterable[str]) -> None:
    """Fold the topics `names`, which the last job of a run has changed: their leaders may rest.

    A table that cannot be folded is named by the next run.
    """
    for topic in map(cluster.cached_topic, names):
        if topic is not None and not is_internal(topic.name):
            _fold(topic, change=True)


def _fold(topic: Topic, change: bool) -> tuple[str, Mapping[str, int], str]:
    """Fold `topic`, if it may `change`; returns its name, how far its table has each partition, by directory,
    and why there is none.
    """
    numbers = range(topic.partition_count)
    directories = [partition_directory(topic.directory, number) for number in numbers]
    try:
        if not change:
            topic.table().refresh(wait=True)
            return topic.name, dict.fromkeys(directories, NOT_FOLDED), ""
        fold_partitions(topic, numbers)  # a partition that cannot be read is named by `_look`
        topic.table().make_durable()  # what another process has folded: a merge goes by it
        topic.table().prune(0)  # a scheduler writes no checkpoint of it, which would forget what is old
        folded = topic.table().snapshot
    except (TopicDeleted, UnknownTopic):
        return topic.name, {}, ""
    except LakelogError as error:
        topic.forget_table()
        return topic.name, {}, f"the table over the topic cannot be used: {error.message}"
    return topic.name, {directories[number]: folded.end(number) for number in numbers}, ""


def _tiered(states: Iterable[PartitionState]) -> list[list[PartitionState]]:
    """The states of partitions with remote tables, of each topic together."""
    found = sorted((state for state in states if state.remote is not None), key=lambda state: state.topic)
    return [list(group) for _, group in groupby(found, key=lambda state: state.topic)]


def _fold_remote(cluster: Cluster, states: list[PartitionState]) -> tuple[str, Mapping[str, int], str]:
    """Fold the table over a topic in the remote root, from the `states`, as `_fold` does here."""
    topic, directory = states[0].topic, states[0].directory.rsplit("/", 1)[0]
    snapshots = {state.partition: state.remote for state in states if state.remote is not None}
    try:
        folded = fold_remote(remote_of(cluster), directory, snapshots)
    except TopicDeleted:
        return topic, {}, ""
    except LakelogError as error:
        return topic, {}, f"the table over the topic in the remote root cannot be used: {error.message}"
    return topic, {state.directory: folded.end(state.partition) for state in states}, ""


def _folded(state: PartitionState, ends: Mapping[str, int]) -> PartitionState:
    """`state` with the end of its fold; 0 if that is not known."""
    return state if is_internal(state.topic) else replace(state, folded=ends.get(state.directory, 0))


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


def held_by_topic(
    cluster: Cluster, topic: str, partition: int, remote: bool = False
) -> Callable[[], Collection[str]]:
    """Gives the files of a partition that the table over its topic names now, in the remote root if `remote`,
    for a vacuum.

    Raises UnknownTopic, and as `Topic.table` or `RemoteRoot.find_topic_table`.
    """
    if is_internal(topic):
        return frozenset
    found = cluster.topic(topic)
    table = remote_of(cluster).find_topic_table(found.directory) if remote else found.table()
    if table is None:
        return frozenset

    def held() -> Collection[str]:
        folded = table.refresh(wait=True)
        table.make_durable()  # a power cut must not bring back what names a deleted file
        return {segment.path for segment in folded.of(partition)}

    return held


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


def _look_at_both(
    cluster: Cluster, topic: str, partition: int, tidied: Mapping[str, int]
) -> PartitionState | UnreadablePartition | None:
    """`_look`, and what the remote root has."""
    state = _look(cluster, topic, partition, tidied)
    if not isinstance(state, PartitionState):
        return state
    return _with_remote(cluster, state) if state.config.remote_storage or state.snapshot.tiered else state


def _look(
    cluster: Cluster, topic: str, partition: int, tidied: Mapping[str, int]
) -> PartitionState | UnreadablePartition | None:
    schemas: Schemas = NO_SCHEMAS
    mirrored, config = False, None
    try:
        if topic == CLUSTER_METADATA:
            log = cluster.metadata_log.partition
        else:
            found = cluster.topic(topic)
            log, config = found.partition(partition), found.config
            schemas, mirrored = found.schemas, bool(found.mirror)
        log.refresh(wait=True)
        log.prune()
        if config is None:
            config = TopicConfig.parse(metadata_configs(log.snapshot, cluster.clock.now_ms()))
        table = log.table
        schemas.look_up(_missing(log.snapshot, schemas))
        checkpointed = table.find_checkpoint() if table.checkpoint_due() else table.checkpointed
    except UnknownTopic:
        return None
    except LakelogError as error:
        return UnreadablePartition(topic, partition, error.message)
    return PartitionState(
        topic=topic,
        partition=partition,
        directory=log.directory,
        config=config,
        snapshot=log.snapshot,
        checkpointed=checkpointed,
        tidied_ms=tidied.get(log.directory),
        schemas=schemas,
        mirrored=mirrored,
    )


def _missing(snapshot: Snapshot, schemas: Schemas) -> set[SchemaId]:
    """The ids of schemas that were not known when columns were made, and are not known yet."""
    tags = {segment.columns for segment in snapshot.segments}
    return {each for tag in tags for each in missing_schemas(tag) if schemas.known(each) is None}


def _with_remote(cluster: Cluster, state: PartitionState) -> PartitionState:
    """`state` with the remote table of its partition, or the reason why that cannot be read."""
    try:
        remote = remote_of(cluster)
        remote.check_owned()  # nothing is planned for a remote root of another root
        table = remote.find(state.directory)
        if table is not None:
            table.make_durable()  # before it is folded
            check_reaches(table.snapshot, state.snapshot, state.directory)
        elif state.snapshot.tiered > state.snapshot.log_start:
            raise StoreUnavailable(f"the remote root has no table {state.directory}; mount or restore it")
    except LakelogError as error:
        return replace(state, unreachable=error.message)
    if table is None:
        return state
    return replace(state, remote=table.snapshot, remote_checkpointed=table.checkpointed)
