"""Whether a root is whole: all files that its logs name exist, and all tables are as new as the groups'
tables.

A root that was copied as files while gateways wrote to it has each table at another moment. Only logs, sizes
of files and committed offsets are checked here; `fsck` also reads every segment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from log_tables.cluster.admin.producer_fence import fence_producers
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import RootLocation, check_finished, locate, note_location
from log_tables.cluster.standby import check_served
from log_tables.cluster.topic_fold import settle
from log_tables.errors import (
    CorruptLog,
    Damaged,
    LakelogError,
    NotLeader,
    ObjectMissing,
    StoreUnavailable,
)
from log_tables.layout import (
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    commit_path,
    commit_version,
    log_directory,
    partition_directory,
)
from log_tables.limits import SIGNS_OF_LIFE, TABLES_CHECKED_AT_ONCE
from log_tables.root.group_replay import GroupReplay, applied
from log_tables.root.listed_brokers import find_living
from log_tables.segments.staging import StagedFile
from log_tables.store.store import Store
from log_tables.table.commit import read_commit
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table
from log_tables.topic_partition import TopicIdPartition

PROBLEMS_SHOWN = 5
"""How many problems of a root an error names."""


def check_location(cluster: Cluster, wait_s: float) -> None:
    """Check a root that was copied or moved since it was last known to be whole, and remember where it is.

    A root that is where it was costs four small reads. A root that a gateway serves is no copy, wherever it
    seems to be: gateways on its list have `wait_s` seconds to show that they live. Raises CorruptLog for a
    copy that is not finished or not whole, or that the original may contradict; StoreUnavailable. The tables
    over topics are made to agree with their partitions, another log epoch begins, and transactional ids are
    fenced.
    """
    check_served(cluster.store)  # first: a promotion notes where the root is before it has ended
    if locate(cluster.store) is RootLocation.HERE:
        return
    check_finished(cluster.store)
    found = inspect(cluster)
    problems = found.problems or [*_unknowable(cluster, found)]
    if problems and not _is_served(cluster, wait_s):
        raise _not_whole(problems)
    for topic in cluster.topics():
        settle(cluster, topic)
    has_records = any(each.high_watermark for each in found.tables.values())
    if has_records and not _is_served(cluster, wait_s):  # who has read it may have read more of the original
        cluster.begin_log_epoch()
        fence_producers(cluster)
    note_location(cluster.store)


def _is_served(cluster: Cluster, wait_s: float) -> bool:
    try:
        return find_living(cluster, wait_s, SIGNS_OF_LIFE) is not None
    except (Damaged, NotLeader):
        return False  # the metadata log is damaged: no gateway serves it


def _not_whole(problems: Sequence[str]) -> CorruptLog:
    more = len(problems) - PROBLEMS_SHOWN
    shown = "; ".join(problems[:PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return CorruptLog(
        f"this root was copied or moved here, and it cannot be served as it is: {shown}. If the original no "
        "longer exists, replace it by this one with `lakelog root adopt --keep-id`; else copy it again with "
        "`lakelog root copy`, or make this one independent with `lakelog root adopt`"
    )


def _unknowable(cluster: Cluster, found: "Inspection") -> Iterator[str]:
    """The doubts about a copied or moved root that its files cannot settle."""
    if cluster.remote_root is not None:
        yield (
            f"it names the remote root {cluster.remote_root}, which only one root may write to, and the "
            "original may still be in use"
        )
    for key, committed in found.groups.places():
        table = found.tables.get(TopicIdPartition(key.topic, committed.topic_id, key.partition))
        if table is not None and committed.offset > table.high_watermark:
            yield (
                f"group {key.group!r} has committed offset {committed.offset} of partition "
                f"{key.partition} of {key.topic}, which ends at {table.high_watermark}: the one was copied "
                "after the other, or the group wants it so"
            )
    if cluster.metadata_log.brokers and found.groups.epochs:
        yield (
            "gateways were on its list when it was copied, and whether the records of the newest "
            "transactions were copied with them cannot be seen"
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """The problems of a root, a sentence each; and its tables and groups."""

    problems: list[str]
    tables: dict[TopicIdPartition, Snapshot]
    groups: GroupReplay


def inspect(cluster: Cluster) -> Inspection:
    """Check that all files exist that the logs of a root name. Raises StoreUnavailable."""
    topics = cluster.topics(include_internal=True)
    directories = [cluster.metadata_log.partition.directory]
    directories += [
        partition_directory(topic.directory, partition)
        for topic in topics
        for partition in range(topic.partition_count)
    ]
    if any(True for _ in cluster.store.list(f"{CREDENTIALS_DIRECTORY}/")):
        directories.append(CREDENTIALS_DIRECTORY)
    groups, problems = _groups(cluster)
    snapshots: dict[str, Snapshot] = {}
    with ThreadPoolExecutor(TABLES_CHECKED_AT_ONCE, thread_name_prefix="whole") as pool:
        looks = pool.map(lambda directory: _table(cluster, directory), directories)
        for directory, (snapshot, found) in zip(directories, looks, strict=True):
            problems += [f"{directory}: {problem}" for problem in found]
            if snapshot is not None:
                snapshots[directory] = snapshot
    tables = {
        TopicIdPartition(topic.name, topic.topic_id, partition): snapshots[directory]
        for topic in topics
        for partition in range(topic.partition_count)
        if (directory := partition_directory(topic.directory, partition)) in snapshots
    }
    problems += lost_files(cluster.store, groups, lambda: _groups(cluster)[0])
    problems += _ahead(tables, _groups(cluster)[0])
    return Inspection(problems, tables, groups)


def _groups(cluster: Cluster) -> tuple[GroupReplay, list[str]]:
    """The groups, and why they cannot be read."""
    groups, problems = GroupReplay(), []
    topic = cluster.cached_topic(CONSUMER_OFFSETS)
    for partition in range(0 if topic is None else topic.partition_count):
        assert topic is not None
        try:
            log = topic.partition(partition)
            groups.follow(cluster.store, log.directory, log.refresh(wait=True))
        except StoreUnavailable:
            raise
        except LakelogError as error:
            problems.append(f"{partition_directory(topic.directory, partition)}: {error.message}")
    return groups, problems


def _table(cluster: Cluster, directory: str) -> tuple[Snapshot | None, list[str]]:
    """The newest snapshot of a table, and the problems of its files."""
    try:
        snapshot = Table(cluster.store, directory, cluster.clock).snapshot
    except ObjectMissing:
        return None, ["there is no table, or its log lacks version 0, though the metadata log names it"]
    except StoreUnavailable:
        raise
    except LakelogError as error:
        return None, [error.message]
    return snapshot, [*lacks(cluster.store, directory, snapshot)]


def lacks(store: Store, directory: str, snapshot: Snapshot) -> Iterator[str]:
    """The problems of the files that the log of a table names, by a listing."""
    sizes = {item.path: item.size for item in store.list(f"{directory}/")}
    following = commit_path(directory, snapshot.version + 1)
    beyond = [path for path in sizes if path.startswith(f"{log_directory(directory)}/") and path > following]
    if snapshot.deleted:
        yield "it says that its topic was deleted, and the metadata log says that it exists"
    versions = [version for version in map(commit_version, beyond) if version is not None]
    # A listing may show an object that was put during it, and lack one that was put before that.
    if versions and following not in sizes and read_commit(store, directory, snapshot.version + 1) is None:
        yield f"version {snapshot.version + 1} is missing, though version {min(versions)} is there"
    for segment in snapshot.segments:
        size = sizes.get(f"{directory}/{segment.path}")
        if size is None:
            yield f"segment {segment.path} is missing"
        elif size != segment.size:
            yield f"segment {segment.path} has {size} bytes, and the log says {segment.size}"


def _is_staged(store: Store, file: StagedFile) -> bool:
    try:
        # Others may have runs in it.
        return store.head(file.path).size >= max(run.start + run.length for run in file.runs)
    except ObjectMissing:
        return False


def lost_files(
    store: Store,
    before: GroupReplay,
    after: Callable[[], GroupReplay],
    is_staged: Callable[[Store, StagedFile], bool] = _is_staged,
) -> Iterator[str]:
    """The staged files in `before` that are gone, by `is_staged`, and that transactions still wait for.

    `after` reads the groups again: a root in use goes on.
    """
    lost = {path for path, file in before.staged().items() if not is_staged(store, file)}
    for path in sorted(lost & after().staged().keys()) if lost else ():
        yield (
            f"the staged file {path} is missing, cut short or changed, and a committed transaction waits for "
            "it; restore it from a backup"
        )


def _ahead(tables: Mapping[TopicIdPartition, Snapshot], groups: GroupReplay) -> Iterator[str]:
    """The partitions with records of transactions that `groups`, read after them, do not have."""
    for (topic, _, partition), table in tables.items():
        for producer, epoch in applied(table.txns.lasting()):
            if epoch > groups.epochs.get(producer, epoch):
                yield (
                    f"partition {partition} of {topic} has records of transaction {epoch} of the producer "
                    f"{producer}, whose group knows of {groups.epochs[producer]} transactions"
                )
