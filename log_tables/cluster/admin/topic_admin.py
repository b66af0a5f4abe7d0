"""Administration of the topics of a root: they are created, altered, grown and deleted here.

The record of a topic in the metadata log is the commit point of its creation and of its deletion; tables are
written before the one and removed long after the other (`undelete`). `sweep` removes the files that a crash
in between leaves. After its record, a deletion ends the log of each partition: a process that still uses the
deleted topic reads that in its table, and asks for the current one (`Cluster.with_current_topic`). A deletion
is answered, and the topic can be re-created, once all its tables have ended.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from log_tables.clock import check_recent
from log_tables.cluster.admin.remote_admin import check_remote_root, check_untiered, make_remote_tables
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_history import differences
from log_tables.cluster.metadata_log import DeletedTopic, MirroredFrom, TopicRecord
from log_tables.cluster.setting import Setting
from log_tables.cluster.topic import Topic, check_writable
from log_tables.cluster.topic_settings import KAFKA_SETTINGS, SETTINGS
from log_tables.columns.declaration import Declaration, check_count, parse
from log_tables.counts import counted
from log_tables.errors import (
    AlreadyExists,
    Damaged,
    InvalidArgument,
    LakelogError,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    UnknownTopic,
    begun,
)
from log_tables.layout import (
    METADATA_DIRECTORY,
    TOPICS,
    incarnation_of,
    log_directory,
    partition_directory,
    topic_directory,
)
from log_tables.limits import DELETED_KEPT_MAX, PARTITIONS_MAX, TABLES_AT_ONCE
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import create_table
from log_tables.topic_table.topic_table import create_topic_table


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    internal: bool = False,
    settings: Mapping[str, Setting] = SETTINGS,
    mirrored: MirroredFrom | None = None,
) -> Topic:
    """Create a topic with `configs` of `settings`; only lakelog itself creates `internal` ones, and only a
    mirror those that are `mirrored`.

    Raises InvalidTopicName, InvalidConfig, InvalidArgument, TopicExists, StoreUnavailable.
    """
    config = check_creation(cluster, name, partitions, configs or {}, internal=internal, settings=settings)
    before = last_life(cluster, name)
    end_deleted(cluster, name)  # the last one; if another was created since, `record` refuses
    started = cluster.clock.boottime()
    _check_log_is_there(cluster)
    incarnation = _make_directory(cluster, name, config)
    _create_tables(cluster, topic_directory(name, incarnation), range(1, partitions), config)
    make_remote_tables(cluster, topic_directory(name, incarnation), range(partitions), config)
    if not internal:
        with suppress(AlreadyExists):  # left by a crash: it is empty
            create_topic_table(cluster.store, topic_directory(name, incarnation), cluster.clock)
    topic_id = cluster.clock.unique_id()

    def record(known: TopicRecord | None) -> TopicRecord:
        check_recent(cluster.clock, started, f"the creation of topic {name!r}")  # its files may be another's
        _check_absent(cluster, name)
        if last_life(cluster, name) != before:
            raise TopicExists(f"topic {name!r} was created and deleted at the same time; create it again")
        made = TopicRecord(name, topic_id, incarnation, partitions, dict(config.overrides))
        made = replace(made, columns=config.columns.text, mirrored=mirrored)
        if known is None:
            return made
        return replace(made, deleted=known.deleted, kept=known.kept, homes=known.homes)

    try:
        cluster.metadata_log.change_topic(name, record, started)
    except TopicExists:
        remove_directory(cluster, topic_directory(name, incarnation))
        raise
    return cluster.topic(name)


def check_creation(
    cluster: Cluster,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    internal: bool = False,
    settings: Mapping[str, Setting] = SETTINGS,
) -> TopicConfig:
    """The configuration of a topic that could be created now. Raises as `create_topic`."""
    if not internal:
        check_writable(name)
    _check_partitions(partitions)
    config = TopicConfig.parse(configs, settings)
    cluster.refresh()
    _check_absent(cluster, name)
    check_remote_root(cluster, config)
    return config


def alter_topic(
    cluster: Cluster,
    name: str,
    configs: Mapping[str, str | None],
    *,
    internal: bool = False,
    mirror: str = "",
) -> Topic:
    """Change settings; None resets one to its default. Only lakelog itself alters `internal` topics, and only
    a `mirror` those that it makes.

    Raises UnknownTopic, InvalidConfig, MirroredTopic.
    """
    change = partial(TopicConfig.altered, changes=configs)
    return change_config(cluster, name, change, internal=internal, mirror=mirror)


def change_config(
    cluster: Cluster,
    name: str,
    change: Callable[[TopicConfig], TopicConfig],
    *,
    internal: bool = False,
    mirror: str = "",
) -> Topic:
    """Give a topic the configuration that `change` makes of the one that it has, which may be called again.

    Raises as `alter_topic`.
    """
    config = check_change(cluster, name, change, internal=internal, mirror=mirror)
    topic = cluster.topic(name)
    make_remote_tables(cluster, topic.directory, range(topic.partition_count), config)

    def record(known: TopicRecord | None) -> TopicRecord:
        live = _live(name, known)
        config = change(TopicConfig(live.configs))
        columns = _grown_columns(live, config)
        return replace(live, configs=dict(config.overrides), columns=columns.text)

    cluster.metadata_log.change_topic(name, record)
    topic = cluster.topic(name)
    with (
        begun(f"topic {name!r} was altered"),
        ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="alter") as pool,
    ):
        for _ in pool.map(partial(_alter_table, topic), range(topic.partition_count)):
            pass  # raises what went wrong
    return topic


def reverted(configs: Mapping[str, str]) -> Callable[[TopicConfig], TopicConfig]:
    """The change by which a topic has the settings `configs` and no others; it raises InvalidConfig for one
    that cannot be.
    """

    def change(config: TopicConfig) -> TopicConfig:
        changes = {each.name: each.new for each in differences(config.overrides, configs)}
        return config.altered(changes, KAFKA_SETTINGS)

    return change


def check_alteration(cluster: Cluster, name: str, configs: Mapping[str, str | None]) -> TopicConfig:
    """The configuration that a topic would have. Raises as `alter_topic`."""
    return check_change(cluster, name, partial(TopicConfig.altered, changes=configs))


def check_change(
    cluster: Cluster,
    name: str,
    change: Callable[[TopicConfig], TopicConfig],
    *,
    internal: bool = False,
    mirror: str = "",
) -> TopicConfig:
    """The configuration that a topic would have by `change`. Raises as `alter_topic`."""
    cluster.refresh()
    topic = cluster.topic(name)
    if not internal:
        check_writable(topic.name)
    topic.check_own(mirror)
    config = change(topic.config)
    check_remote_root(cluster, config)
    if config.compacted:
        check_untiered(topic)
    _grown_columns(_live(name, cluster.metadata_log.topic(name)), config)
    return config


def _grown_columns(live: TopicRecord, config: TopicConfig) -> Declaration:
    """All columns that the topic will ever have declared. Raises InvalidConfig for what cannot be."""
    columns = parse(live.columns).grown(config.columns)
    check_count(columns)
    return columns


def _alter_table(topic: Topic, number: int) -> None:
    """Let the table of a partition say what its topic's settings say."""
    partition = topic.partition(number)
    partition.set_properties(topic.config.table_properties())
    partition.table.widen(topic.config.columns)


def add_partitions(cluster: Cluster, name: str, count: int, mirror: str = "") -> Topic:
    """Grow a topic to a total of `count` partitions; only a `mirror` grows those that it makes.

    Raises UnknownTopic, InvalidArgument, MirroredTopic.
    """
    cluster.refresh()
    topic = cluster.topic(name)
    check_writable(name)
    topic.check_own(mirror)
    _check_partitions(count)
    added = range(topic.partition_count, count)
    _create_tables(cluster, topic.directory, added, topic.config)
    make_remote_tables(cluster, topic.directory, added, topic.config)

    def record(known: TopicRecord | None) -> TopicRecord:
        live = _same(topic, known)
        check_growth(name, live.partitions, count)
        return replace(live, partitions=count)

    cluster.metadata_log.change_topic(name, record)
    return cluster.topic(name)


def check_growth(name: str, partitions: int, count: int) -> None:
    """Raise InvalidArgument unless a topic of so many `partitions` can have `count`."""
    _check_partitions(count)
    if count <= partitions:
        raise InvalidArgument(
            f"topic {name!r} has {counted(partitions, 'partition')} and cannot have {count}; name a larger "
            "number, as partitions can only be added"
        )


def delete_topic(cluster: Cluster, name: str, topic_id: str | None = None) -> None:
    """Delete a topic, with a `topic_id` only the one that has it; `sweep` removes its files later, and until
    then an undelete brings it back. Raises UnknownTopic, MirroredTopic.

    On return every process finds it deleted. A deletion that another process left unfinished is finished,
    and counts as this one. Damaged partitions, which take no appends, are skipped.
    """
    cluster.refresh()
    try:
        topic = _record_deletion(cluster, name, topic_id)
    except UnknownTopic:
        # Another process may have deleted it at the same time, and not be finished, or dead.
        cluster.metadata_log.make_durable()
        if topic_id is None and end_deleted(cluster, name):
            return
        raise
    with begun(f"topic {name!r} was deleted"):
        _end(cluster, topic)


def _record_deletion(cluster: Cluster, name: str, topic_id: str | None) -> Topic:
    topic = cluster.topic(name)
    check_writable(name)
    if topic_id not in (None, topic.topic_id):
        raise UnknownTopic(f"topic {name!r} has another id; it was deleted and re-created")
    topic.check_own()
    records, size = held(topic)

    def record(known: TopicRecord | None) -> TopicRecord:
        live = _same(topic, known)
        deleted = {**live.deleted, live.incarnation: cluster.clock.now_ms()}
        kept = dict(live.kept)
        if TopicConfig(live.configs).topic_delete_delay_ms > 0:
            kept[live.incarnation] = DeletedTopic(
                live.topic_id, live.partitions, live.configs, live.columns, live.revived, records, size
            )
        newest = sorted(kept)[-DELETED_KEPT_MAX:]
        return replace(live, live=False, deleted=deleted, kept={each: kept[each] for each in newest})

    cluster.metadata_log.change_topic(name, record)
    return topic


def held(topic: Topic) -> tuple[int, int]:
    """The records and the bytes of a topic here, as far as its partitions can be read."""
    segments = [segment for snapshot in _snapshots(topic) for segment in snapshot.segments]
    return sum(segment.records for segment in segments), sum(segment.size for segment in segments)


def _snapshots(topic: Topic) -> list[Snapshot]:
    def newest(partition: int) -> Snapshot | None:
        with suppress(LakelogError):  # what one holds that cannot be read is not known
            return topic.partition(partition).refresh()
        return None

    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="look") as pool:
        found = pool.map(newest, range(topic.partition_count))
        return [snapshot for snapshot in found if snapshot is not None]


def end_deleted(cluster: Cluster, name: str) -> bool:
    """End the logs of the topic `name`, if it was deleted; returns whether one had not ended.

    All logs of its earlier incarnations have ended: that came before each creation. Raises
    StoreUnavailable, OutcomeUnknown.
    """
    known = cluster.metadata_log.topic(name)
    if known is None or known.live or known.incarnation not in known.deleted:
        return False  # there is no deleted topic, or its files are gone
    return _end(cluster, cluster.topic_of(known))


def _end(cluster: Cluster, topic: Topic) -> bool:
    """End the logs of the deleted `topic`; returns whether one had not ended."""
    number = topic.revived + 1
    if cluster.ended.get(topic.topic_id, 0) >= number:
        return False
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="end") as pool:
        end = partial(_end_partition, cluster, topic, number)
        ended = [*pool.map(end, range(topic.partition_count))]
    _end_table(topic, number)
    cluster.ended[topic.topic_id] = number
    return any(ended)


def _end_partition(cluster: Cluster, topic: Topic, number: int, partition: int) -> bool:
    try:
        return topic.partition(partition).delete(cluster.url, number)
    except (Damaged, TopicDeleted):
        return False  # it can have no leader, or its files are gone


def _end_table(topic: Topic, number: int) -> None:
    """Empty the table over the deleted `topic`, once its partitions have ended."""
    with suppress(Damaged, TopicDeleted):  # nobody folds a damaged one, and the sweep takes it
        topic.table().end(number)


def last_life(cluster: Cluster, name: str) -> tuple[int, int, bool]:
    """The newest incarnation of a name, how often it came back, and whether it lives. Another one begins only
    when this one has ended, so a change in between may not be overlooked.
    """
    known = cluster.metadata_log.topic(name)
    return (0, 0, False) if known is None else (known.incarnation, known.revived, known.live)


def _check_absent(cluster: Cluster, name: str) -> None:
    if cluster.cached_topic(name) is not None:
        cluster.metadata_log.make_durable()  # a client that repeats its creation takes the error for a yes
        raise TopicExists(f"topic {name!r} exists already; choose another name, or delete the topic first")


def _check_log_is_there(cluster: Cluster) -> None:
    """Raise StoreUnavailable in a root without the metadata log, as where another disk is mounted instead: it
    may have the device and the inode of the first one.
    """
    if not any(True for _ in cluster.store.list(f"{log_directory(METADATA_DIRECTORY)}/")):
        raise StoreUnavailable(
            f"the metadata log is gone from {cluster.store.url}: another disk may be mounted there; mount "
            "the right one, and start again"
        )


def _make_directory(cluster: Cluster, name: str, config: TopicConfig) -> int:
    """Begin a directory for the topic `name`; returns its number, which is this process's alone.

    The process that puts the first table owns the directory: of two that create one topic at once, the
    loser must be able to remove its own directory without touching the other's.
    """
    number = free_incarnation(cluster, name)
    while True:
        table = partition_directory(topic_directory(name, number), 0)
        try:
            create_table(cluster.store, table, cluster.clock, config.table_properties(), config.columns)
            return number
        except AlreadyExists:
            number += 1


def free_incarnation(cluster: Cluster, name: str) -> int:
    """The first number that neither the metadata log nor the store has. How many other topics there are costs
    nothing: mirrors create thousands.
    """
    known = cluster.metadata_log.topic(name)
    number = 1 if known is None else known.incarnation + 1
    while any(True for _ in cluster.store.list(f"{topic_directory(name, number)}/")):
        number += 1
    return number


def topic_directories(cluster: Cluster) -> list[str]:
    """Every directory under `topics/` that has the name of a topic's."""
    found = (directory.rstrip("/") for directory in cluster.store.list_dirs(f"{TOPICS}/"))
    return [directory for directory in found if incarnation_of(directory) is not None]


def _create_tables(cluster: Cluster, directory: str, partitions: range, config: TopicConfig) -> None:
    for partition in partitions:
        try:
            create_table(
                cluster.store,
                partition_directory(directory, partition),
                cluster.clock,
                config.table_properties(),
                config.columns,
            )
        except AlreadyExists:
            pass  # left by a crash before the metadata log named it: empty, and as good as a new one


def remove_directory(cluster: Cluster, directory: str) -> None:
    """Delete every object below `directory`."""
    for item in list(cluster.store.list(f"{directory}/")):
        cluster.store.delete(item.path)


def _check_partitions(count: int) -> None:
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidArgument(f"a topic cannot have {count} partitions; use 1 to {PARTITIONS_MAX}")


def _live(name: str, known: TopicRecord | None) -> TopicRecord:
    if known is None or not known.live:
        raise UnknownTopic(f"there is no topic {name!r}; check its name, or create it")
    return known


def _same(topic: Topic, known: TopicRecord | None) -> TopicRecord:
    live = _live(topic.name, known)
    if live.topic_id != topic.topic_id:
        raise UnknownTopic(
            f"topic {topic.name!r} was deleted and re-created at the same time; describe it, and repeat the "
            "request"
        )
    return live
