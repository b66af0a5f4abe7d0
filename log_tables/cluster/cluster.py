"""The topics of a root: they are created, altered, deleted, found and claimed here.

The record of a topic in the metadata log is the commit point of its creation and of its deletion; tables are
written before the one and removed after the other. `sweep` removes the files that a crash in between leaves.
After its record, a deletion ends the log of each partition: a process that still uses the deleted topic reads
that in its table, and asks here for the current one (`with_current_topic`). A deletion is answered, and the
topic can be re-created, once all its tables have ended.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from log_tables.clock import Clock, SystemClock
from log_tables.cluster.config import COMPACT, TopicConfig
from log_tables.cluster.metadata_log import MetadataLog, TopicRecord, open_log
from log_tables.cluster.root_location import RootLocation, check_finished, locate, note_location
from log_tables.cluster.topic import Topic, check_writable, is_internal
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    Damaged,
    InvalidArgument,
    InvalidConfig,
    LakelogError,
    ObjectMissing,
    StoreUnavailable,
    TopicDeleted,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.layout import (
    PROPERTY_REMOTE_OWNER,
    PROPERTY_REMOTE_ROOT,
    REMOTE_OWNER,
    TOPICS,
    partition_directory,
    topic_directory,
)
from log_tables.limits import CONFIRMATION_MAX_AGE_S, PARTITIONS_MAX, TABLES_ENDED_AT_ONCE
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.partition.remote import RemoteRoot, check_reaches
from log_tables.segments.segment import SegmentCache
from log_tables.store.store import Store, open_store, overlap
from log_tables.table.table import create_table, topic_deleted

Result = TypeVar("Result")

_INCARNATION = re.compile(r"(?P<name>[a-zA-Z0-9._-]+)(~(?P<number>\d+))?")


class Cluster:
    """The topics of one root. Thread-safe; blocking."""

    def __init__(self, store: Store, clock: Clock, url: str, log: Partition) -> None:
        self.store, self.clock, self.url = store, clock, url
        self.metadata_log = MetadataLog(log, url, self._follow)
        self._cache = SegmentCache()
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        # By topic name, the newest deleted incarnation of which every table has ended.
        self._ended: dict[str, int] = {}
        self._remote: RemoteRoot | None = None

    @classmethod
    def open(cls, store: Store, clock: Clock | None = None, url: str = "", create: bool = True) -> "Cluster":
        """The cluster at `store`'s root; an empty root becomes a cluster unless `create` is false.

        `url` is the URL of this process, for its claims. Raises InvalidArgument when there is no cluster to
        open, CorruptLog when there are topics and no metadata log.
        """
        clock = clock or SystemClock()
        cluster = cls(store, clock, url, open_log(store, clock, create))
        cluster.refresh()
        return cluster

    @property
    def cluster_id(self) -> str:
        """Unique to this root, and the same for every gateway on it."""
        return self.metadata_log.partition.snapshot.metadata.id

    @property
    def remote_root(self) -> str | None:
        """The URL of the remote root, to which `remote.storage.enable` moves segments; None without one."""
        return self.metadata_log.partition.snapshot.metadata.configuration.get(PROPERTY_REMOTE_ROOT)

    @property
    def remote(self) -> RemoteRoot | None:
        """The remote root as last refreshed. It is opened at its first use, with the options of this root."""
        url, known = self.remote_root, self._remote
        if url is None:
            return None
        if known is not None and (known.url, known.cluster_id) == (url, self.cluster_id):
            return known

        def opened() -> Store:
            return open_store(url, self.store.options, create=False, clock=self.clock)

        self._remote = RemoteRoot(url, self.cluster_id, self.clock, opened, self._remote_owner)
        return self._remote

    def _remote_owner(self) -> str:
        configuration = self.metadata_log.partition.snapshot.metadata.configuration
        return configuration.get(PROPERTY_REMOTE_OWNER, "")

    def set_remote_root(self, url: str | os.PathLike[str]) -> None:
        """Set the remote root: a URL, or a directory, which is created and kept as its absolute path.

        A new remote root must hold all records that were moved to the old one: stop the jobs and copy them
        first. Raises InvalidArgument when a table is missing there, and for a root that cannot be used, such
        as one inside of this root; StoreUnavailable.
        """
        with suppress(InvalidArgument):
            if open_store(url, self.store.options, create=False).url == self.remote_root:
                return  # without reading it: a gateway starts while it is away, and serves what is here
        store = open_store(url, self.store.options, clock=self.clock)
        if overlap(store.url, self.store.url):  # a sweep of one would remove tables of the other
            raise InvalidArgument(
                "the remote root is the root itself, or one of them lies inside the other; name another place"
            )
        self.refresh(wait=True)
        if locate(self.store) is RootLocation.UNKNOWN:
            check_finished(self.store)
            note_location(self.store)  # now, or a copy of this root could not be told from it
        remote = RemoteRoot(store.url, self.cluster_id, self.clock, lambda: store, self._remote_owner)
        remote.mark()
        self._check_owned(remote)
        if self.remote_root not in (None, store.url):
            self._check_moved(remote)
        self.metadata_log.partition.set_properties({PROPERTY_REMOTE_ROOT: store.url})

    def _check_owned(self, remote: RemoteRoot) -> None:
        """Raise InvalidArgument when `remote` is another root's, of the same cluster id."""
        try:
            remote.check_owned()
        except CorruptLog:
            raise InvalidArgument(
                f"{remote.url} belongs to another root of cluster {self.cluster_id}; name another place, or, "
                f"if that root no longer exists, delete the object {REMOTE_OWNER} there"
            ) from None

    def _check_moved(self, remote: RemoteRoot) -> None:
        """Raise InvalidArgument when `remote` lacks a table to which records were moved."""
        for topic in self.topics(include_internal=True):
            for partition in topic.partitions():
                here = partition.refresh(wait=True)
                if here.tiered <= here.log_start:
                    continue
                try:
                    check_reaches(remote.table(partition.directory).snapshot, here, partition.directory)
                except (StoreUnavailable, CorruptLog) as error:
                    raise InvalidArgument(
                        f"{remote.url} does not hold the records that were moved: {error.message}; copy the "
                        f"tables of {self.remote_root} there first"
                    ) from None

    @property
    def version(self) -> int:
        """A number that grows with every change of a topic."""
        return self.metadata_log.topic_changes

    def refresh(self, wait: bool = False) -> None:
        """Follow the metadata log; with `wait`, after a change of this process that is in flight.

        Raises CorruptLog.
        """
        self.metadata_log.refresh(wait)

    def claim(self, topic: Topic, partition: int, broker: int = 0) -> Partition:
        """Claim a partition of `topic` for this process, which is the gateway `broker`; 0 is none.

        The metadata log is read after the claim: a deletion that it does not show yet makes a later claim,
        which fences this one. Raises TopicDeleted when the topic was deleted.
        """
        log = topic.partition(partition)
        # Acknowledged records must not outlive the record that names their topic.
        self.metadata_log.make_durable()
        log.claim(self.url, broker)
        self.refresh(wait=True)
        if not self.is_live(topic):
            raise topic_deleted(topic.directory)
        return log

    def is_live(self, topic: Topic) -> bool:
        """Whether `topic` is still the topic of its name, as last refreshed."""
        return self._topics.get(topic.name) is topic

    def with_current_topic(self, name: str, act: Callable[[Topic], Result]) -> Result:
        """The result of `act` for the topic `name`. It is called again with the current topic where it failed
        because the topic is an old one.

        Raises UnknownTopic, and what `act` raises for the current topic.
        """
        topic = self.topic(name)
        while True:
            partitions = topic.partition_count
            try:
                return act(topic)
            except LakelogError as error:
                topic = self.current_topic(topic, partitions, error)

    def current_topic(self, topic: Topic, partitions: int, error: LakelogError) -> Topic:
        """The current topic, after `error` was raised for `topic` when it had so many `partitions`.

        Raises `error` itself if `topic` is the current one, UnknownTopic when there is none of its name.
        """
        if not isinstance(error, TopicDeleted | UnknownPartition | Damaged):
            raise error
        self.refresh(wait=True)
        if self.is_live(topic) and topic.partition_count == partitions:
            if isinstance(error, TopicDeleted):
                raise contradicted(error)
            raise error
        return self.topic(topic.name)

    def _follow(self, record: TopicRecord) -> None:
        with self._lock:
            known = self._topics.get(record.name)
            if not record.live:
                self._topics.pop(record.name, None)
            elif known is not None and known.topic_id == record.topic_id:
                known.update(record.partitions, TopicConfig(record.configs))
            else:
                self._topics[record.name] = self._topic(record)

    def _topic(self, record: TopicRecord) -> Topic:
        return Topic(
            partial(self._open_partition, record.name, record.topic_id),
            record.name,
            record.topic_id,
            record.incarnation,
            record.partitions,
            TopicConfig(record.configs),
        )

    def _open_partition(self, name: str, topic_id: str, directory: str, config: PartitionConfig) -> Partition:
        """Raises TopicDeleted if there is no table because the topic was deleted, otherwise ObjectMissing."""
        try:
            return Partition(self.store, directory, self.clock, config, self._cache, lambda: self.remote)
        except ObjectMissing:
            self.refresh(wait=True)
            known = self.metadata_log.topic(name)
            if known is None or not known.live or known.topic_id != topic_id:
                raise topic_deleted(directory) from None
            raise

    def topics(self, include_internal: bool = False) -> list[Topic]:
        """Every topic as last refreshed, by name."""
        with self._lock:
            return [t for _, t in sorted(self._topics.items()) if include_internal or not is_internal(t.name)]

    def cached_topic(self, name: str) -> Topic | None:
        """The topic `name` as last refreshed, None without one; does not ask the store."""
        return self._topics.get(name)

    def topic(self, name: str) -> Topic:
        """The topic `name`; one that is not cached is looked for in the metadata log. Raises UnknownTopic."""
        found = self._topics.get(name)
        if found is None:
            self.refresh()
            found = self._topics.get(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}; create it first")
        return found

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        internal: bool = False,
    ) -> Topic:
        """Create a topic; only lakelog itself creates `internal` ones.

        Raises InvalidTopicName, InvalidConfig, InvalidArgument, TopicExists.
        """
        if not internal:
            check_writable(name)
        _check_partitions(partitions)
        config = TopicConfig.parse(configs or {})
        self.refresh()
        self._check_absent(name)
        self._check_remote(config)
        before = self._last_incarnation(name)
        self.end_deleted(name)  # the last one; if another was created since, `record` refuses
        started = self.clock.boottime()
        incarnation = self._make_directory(name, config)
        self._create_tables(topic_directory(name, incarnation), range(1, partitions), config)
        self._make_remote_tables(topic_directory(name, incarnation), range(partitions), config)
        topic_id = self.clock.unique_id()

        def record(known: TopicRecord | None) -> TopicRecord:
            self._check_absent(name)
            if self.clock.boottime() - started > CONFIRMATION_MAX_AGE_S:
                raise InvalidArgument(
                    f"the creation of topic {name!r} took more than {CONFIRMATION_MAX_AGE_S // 60} minutes "
                    "and was dropped; create it again"
                )
            if self._last_incarnation(name) != before:
                raise TopicExists(f"topic {name!r} was created and deleted at the same time; create it again")
            deleted = {} if known is None else known.deleted
            return TopicRecord(name, topic_id, incarnation, partitions, dict(config.overrides), True, deleted)

        try:
            self.metadata_log.change_topic(name, record)
        except TopicExists:
            self.remove(topic_directory(name, incarnation))
            raise
        return self.topic(name)

    def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> Topic:
        """Change settings; None resets one to its default. Raises UnknownTopic, InvalidConfig."""
        self.refresh()
        topic = self.topic(name)
        check_writable(topic.name)
        config = topic.config.altered(configs)
        self._check_remote(config)
        if config.compacted:
            self._check_untiered(topic)
        self._make_remote_tables(topic.directory, range(topic.partition_count), config)

        def record(known: TopicRecord | None) -> TopicRecord:
            live = _live(name, known)
            config = TopicConfig(live.configs).altered(configs)
            return msgspec.structs.replace(live, configs=dict(config.overrides))

        self.metadata_log.change_topic(name, record)
        topic = self.topic(name)
        for partition in topic.partitions():
            partition.set_properties(topic.config.table_properties())
        return topic

    def add_partitions(self, name: str, count: int) -> Topic:
        """Grow a topic to a total of `count` partitions. Raises UnknownTopic, InvalidArgument."""
        self.refresh()
        topic = self.topic(name)
        check_writable(name)
        _check_partitions(count)
        added = range(topic.partition_count, count)
        self._create_tables(topic.directory, added, topic.config)
        self._make_remote_tables(topic.directory, added, topic.config)

        def record(known: TopicRecord | None) -> TopicRecord:
            live = _same(topic, known)
            if count <= live.partitions:
                raise InvalidArgument(
                    f"topic {name!r} has {live.partitions} partitions and cannot have {count}; name a larger "
                    "number, as partitions can only be added"
                )
            return msgspec.structs.replace(live, partitions=count)

        self.metadata_log.change_topic(name, record)
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic for good; `sweep` removes its files later. Raises UnknownTopic.

        On return every process finds it deleted. A deletion that another process left unfinished is finished,
        and counts as this one. Damaged partitions, which take no appends, are skipped.
        """
        self.refresh()
        try:
            topic = self._record_deletion(name)
        except UnknownTopic:
            # Another process may have deleted it at the same time, and not be finished, or dead.
            self.metadata_log.make_durable()
            if self.end_deleted(name):
                return
            raise
        self._end(topic)

    def _record_deletion(self, name: str) -> Topic:
        topic = self.topic(name)
        check_writable(name)

        def record(known: TopicRecord | None) -> TopicRecord:
            live = _same(topic, known)
            deleted = {**live.deleted, live.incarnation: self.clock.now_ms()}
            return msgspec.structs.replace(live, live=False, deleted=deleted)

        self.metadata_log.change_topic(name, record)
        return topic

    def end_deleted(self, name: str) -> bool:
        """End the logs of the topic `name`, if it was deleted; returns whether one had not ended.

        All logs of its earlier incarnations have ended: that came before each creation. Raises
        StoreUnavailable, OutcomeUnknown.
        """
        known = self.metadata_log.topic(name)
        if known is None or known.live or known.incarnation not in known.deleted:
            return False  # there is no deleted topic, or its files are gone
        return self._end(self._topic(known))

    def _end(self, topic: Topic) -> bool:
        """End the logs of the deleted `topic`; returns whether one had not ended."""
        if self._ended.get(topic.name) == topic.incarnation:
            return False
        with ThreadPoolExecutor(TABLES_ENDED_AT_ONCE, thread_name_prefix="end") as pool:
            ended = [*pool.map(partial(self._end_partition, topic), range(topic.partition_count))]
        self._ended[topic.name] = topic.incarnation
        return any(ended)

    def _end_partition(self, topic: Topic, partition: int) -> bool:
        try:
            return topic.partition(partition).delete(self.url)
        except (Damaged, TopicDeleted):
            return False  # it can have no leader, or its files are gone

    def _last_incarnation(self, name: str) -> int:
        known = self.metadata_log.topic(name)
        return 0 if known is None else known.incarnation

    def _check_remote(self, config: TopicConfig) -> None:
        """Raise InvalidConfig when segments are to move to a remote root and none is set."""
        if config.remote_storage and self.remote_root is None:
            self.metadata_log.partition.refresh()
            if self.remote_root is None:
                raise InvalidConfig(
                    "remote.storage.enable='true' needs a remote root, and none is set; set one with "
                    "`lakelog maintain --remote-root` or the setting remote_root"
                )

    def _check_untiered(self, topic: Topic) -> None:
        """Raise InvalidConfig when `topic`, to be compacted by key, has records in the remote root."""
        for partition in topic.partitions():
            here = partition.refresh()
            if here.tiered > here.log_start:
                raise InvalidConfig(
                    f"cleanup.policy={COMPACT!r} needs the whole log in one root, and offsets up to "
                    f"{here.tiered - 1} of {partition.directory} are in the remote root; delete these "
                    "records, or wait until retention has deleted them"
                )

    def _check_absent(self, name: str) -> None:
        if name in self._topics:
            self.metadata_log.make_durable()  # a client that repeats its creation takes the error for a yes
            raise TopicExists(
                f"topic {name!r} exists already; choose another name, or delete the topic first"
            )

    def _make_directory(self, name: str, config: TopicConfig) -> int:
        """Begin a directory for the topic `name`; returns its number, which is this process's alone.

        The process that puts the first table owns the directory: of two that create one topic at once, the
        loser must be able to remove its own directory without touching the other's.
        """
        number = self._free_incarnation(name)
        while True:
            table = partition_directory(topic_directory(name, number), 0)
            try:
                create_table(self.store, table, self.clock, config.table_properties())
                return number
            except AlreadyExists:
                number += 1

    def _free_incarnation(self, name: str) -> int:
        """A number that neither the metadata log nor the store has."""
        known = self.metadata_log.topic(name)
        used = 0 if known is None else known.incarnation
        for found, number in self.directories():
            if found == name:
                used = max(used, number)
        return used + 1

    def directories(self) -> list[tuple[str, int]]:
        """(topic name, incarnation) of every directory under `topics/`."""
        names = (directory.rstrip("/").rsplit("/", 1)[-1] for directory in self.store.list_dirs(f"{TOPICS}/"))
        matches = (match for match in map(_INCARNATION.fullmatch, names) if match)
        return [(match["name"], int(match["number"] or 1)) for match in matches]

    def _create_tables(self, directory: str, partitions: range, config: TopicConfig) -> None:
        for partition in partitions:
            try:
                create_table(
                    self.store,
                    partition_directory(directory, partition),
                    self.clock,
                    config.table_properties(),
                )
            except AlreadyExists:
                pass  # left by a crash before the metadata log named it: empty, and as good as a new one

    def _make_remote_tables(self, directory: str, partitions: range, config: TopicConfig) -> None:
        """Create the tables in the remote root before any segment moves there: SQL views name them."""
        remote = self.remote
        if config.remote_storage and remote is not None:
            for partition in partitions:
                remote.make_table(partition_directory(directory, partition))

    def remove(self, directory: str) -> None:
        """Delete every object below `directory`."""
        for item in list(self.store.list(f"{directory}/")):
            self.store.delete(item.path)


def contradicted(error: TopicDeleted) -> CorruptLog:
    """The error when a table says that its topic was deleted, and the metadata log that it exists."""
    return CorruptLog(
        f"{error.message}: but the metadata log says that the topic exists; run `lakelog fsck`, and restore "
        "the metadata log and the table from the same time"
    )


def _check_partitions(count: int) -> None:
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidArgument(f"a topic cannot have {count} partitions; use 1 to {PARTITIONS_MAX}")


def _live(name: str, known: TopicRecord | None) -> TopicRecord:
    if known is None or not known.live:
        raise UnknownTopic(f"there is no topic {name!r}; create it first")
    return known


def _same(topic: Topic, known: TopicRecord | None) -> TopicRecord:
    live = _live(topic.name, known)
    if live.topic_id != topic.topic_id:
        raise UnknownTopic(
            f"topic {topic.name!r} was deleted and re-created at the same time; describe it, and repeat the "
            "request"
        )
    return live
