"""The topics of a root, as the metadata log names them: they are followed, found and claimed here.

A process that still uses a deleted topic reads in its tables that it is deleted, and asks here for the
current one (`with_current_topic`).
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from log_tables.clock import Clock, SystemClock
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import MetadataLog, TopicRecord, open_log
from log_tables.cluster.registry_topic import Follow
from log_tables.cluster.schema_sources import RootSchemas, SchemaSources
from log_tables.cluster.topic import Topic, is_internal
from log_tables.errors import (
    CorruptLog,
    Damaged,
    InvalidConfig,
    LakelogError,
    ObjectMissing,
    TopicDeleted,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.layout import (
    PROPERTY_REMOTE_OWNER,
    PROPERTY_REMOTE_ROOT,
)
from log_tables.limits import TABLES_AT_ONCE
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.partition.remote import RemoteRoot
from log_tables.schemas.registry_client import RegistryAccess
from log_tables.schemas.schema import NOWHERE, NotedSchemas, SchemaLocation
from log_tables.schemas.source import topic_of
from log_tables.segments.segment_cache import SegmentCache
from log_tables.store.store import Store, open_store
from log_tables.table.delta_log import topic_deleted
from log_tables.table.log_epochs import LogEpochs
from log_tables.topic_table.topic_table import TopicTable

Result = TypeVar("Result")


class Cluster:
    """The topics of one root. Thread-safe; blocking."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        url: str,
        log: Partition,
        registries: Iterable[RegistryAccess] = (),
    ) -> None:
        self.store, self.clock, self.url = store, clock, url
        self.metadata_log = MetadataLog(log, url, self._follow)
        self._cache = SegmentCache()
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._names: dict[str, str] = {}
        # By topic id, the newest deletion of which this process has ended every table.
        self.ended: dict[str, int] = {}
        # (id, how often) of topics that came back, of which this process has let every table go on.
        self.revived: set[tuple[str, int]] = set()
        self._remote: RemoteRoot | None = None
        self.schema_sources = SchemaSources(store, clock, self._follow_one, registries)

    @classmethod
    def open(
        cls,
        store: Store,
        clock: Clock | None = None,
        url: str = "",
        create: bool = True,
        registries: Iterable[RegistryAccess] = (),
    ) -> "Cluster":
        """The cluster at `store`'s root; an empty root becomes a cluster unless `create` is false.

        `url` is the URL of this process, for its claims; it asks no registry of schemas but `registries`.
        Raises RootMissing when there is no cluster to open, CorruptLog when there are topics and no
        metadata log.
        """
        clock = clock or SystemClock()
        cluster = cls(store, clock, url, open_log(store, clock, create), registries)
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
    def log_epochs(self) -> LogEpochs:
        """The log epochs of the root, as last refreshed; what is written from now on is of the newest."""
        return self.metadata_log.partition.snapshot.log_epochs

    def begin_log_epoch(self) -> None:
        """Note that the root goes on from a state that may be older than what readers have seen, before it
        takes records. Raises as `Partition.claim`.
        """
        self.metadata_log.partition.begin_log_epoch(self.url)

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

        self._remote = RemoteRoot(url, self.cluster_id, self.clock, opened, self.remote_owner)
        return self._remote

    def remote_owner(self) -> str:
        """The mark of the root that may change the remote root (`RemoteRoot`); "" before one was adopted."""
        configuration = self.metadata_log.partition.snapshot.metadata.configuration
        return configuration.get(PROPERTY_REMOTE_OWNER, "")

    @property
    def version(self) -> int:
        """A number that grows with every change of a topic."""
        return self.metadata_log.topic_changes

    def refresh(self, wait: bool = False) -> None:
        """Follow the metadata log; with `wait`, after a change of this process that is in flight.

        Raises CorruptLog.
        """
        self.metadata_log.refresh(wait)

    def claim(self, topic: Topic, partition: int, broker: int = 0, mirror: str = "") -> Partition:
        """Claim a partition of `topic` for this process, which is the gateway `broker`; 0 is none. Who copies
        for a `mirror` names it.

        The metadata log is read after the claim: a deletion that it does not show yet makes a later claim,
        which fences this one. Raises TopicDeleted when the topic was deleted, MirroredTopic when another one
        makes its records: a claim would fence it.
        """
        log = topic.partition(partition)
        self.check_own(topic, mirror)
        log.revive(self.url, topic.revived)
        # Acknowledged records must not outlive the record that names their topic.
        self.metadata_log.make_durable()
        log.claim(self.url, broker)
        self.refresh(wait=True)
        if not self.is_live(topic):
            raise topic_deleted(topic.directory)
        topic.check_own(mirror)
        return log

    def check_own(self, topic: Topic, mirror: str = "") -> None:
        """`Topic.check_own`, by the metadata log as it is now if the topic was a mirror's."""
        if topic.mirror != mirror:
            self.refresh()
            topic.check_own(mirror)

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
            if not isinstance(error, TopicDeleted):
                raise error
            self.go_on(topic, error)
        return self.topic(topic.name)

    def go_on(self, topic: Topic, error: TopicDeleted) -> None:
        """Revive the tables of `topic`, which is live as last refreshed, after `error` was raised for it: who
        brings it back may not have done so yet, or has died.

        Raises CorruptLog when a table stays ended all the same, and the topic was not deleted in between.
        """
        revived = topic.revived
        if not self.revive(topic) and topic.has_ended():
            self.refresh(wait=True)
            if self.is_live(topic) and topic.revived == revived:
                raise contradicted(error)

    def revive(self, topic: Topic) -> bool:
        """Let all tables of `topic` go on, which was brought back; returns whether one had ended, as far as
        this process knew. An undelete does it, and whoever finds that it died before.

        Raises StoreUnavailable, OutcomeUnknown; Damaged partitions, which take no appends, are skipped.
        """
        had_ended = False
        with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="revive") as pool:
            for each in pool.map(partial(self._revive_partition, topic), range(topic.partition_count)):
                had_ended |= each
        with suppress(Damaged):
            had_ended |= topic.table().revive(topic.revived)
        return had_ended

    def _revive_partition(self, topic: Topic, partition: int) -> bool:
        with suppress(Damaged):
            log = topic.partition(partition)
            had_ended = log.snapshot.deleted
            return log.revive(self.url, topic.revived) or (had_ended and not log.snapshot.deleted)
        return False

    def _follow(self, record: TopicRecord) -> None:
        with self._lock:
            known = self._topics.get(record.name)
            if known is not None and record.live and known.topic_id == record.topic_id:
                config = TopicConfig(record.configs)
                known.update(record.partitions, config, _mirror_of(record), record.revived)
                return
            if known is not None:
                del self._names[known.topic_id]
            if record.live:
                self._topics[record.name] = self.topic_of(record)
                self._names[record.topic_id] = record.name
            else:
                self._topics.pop(record.name, None)

    def topic_of(self, record: TopicRecord) -> Topic:
        """A topic as `record` has it, which may be deleted."""
        topic = Topic(
            partial(self._open_partition, record.name, record.topic_id),
            lambda directory: TopicTable(self.store, directory, self.clock),
            record.name,
            record.topic_id,
            record.incarnation,
            record.partitions,
            TopicConfig(record.configs),
            self.schemas,
        )
        topic.mirror, topic.revived = _mirror_of(record), record.revived
        topic.home = record.homes.get(record.incarnation, "")
        return topic

    def schemas(self, source: str) -> NotedSchemas:
        """The schemas of `source`, in the form of the setting `value.columns.schemas`; one object for each
        source. No I/O.
        """
        return self.schema_sources.of(source)

    def schema_location(self, source: str) -> SchemaLocation:
        """Where a task in another process finds them. Raises UnknownTopic, InvalidConfig."""
        if not source:
            return NOWHERE
        name, options = topic_of(source), tuple(self.store.options.items())
        directory = "" if name is None else _only_partition(self.topic(name)).directory
        return RootSchemas(self.store.url, options, source, directory)

    def _follow_one(self, name: str) -> Follow:
        """How the topic `name` is followed, which has one partition and may be made again."""
        return lambda act: self.with_current_topic(name, lambda topic: act(_only_partition(topic)))

    def _open_partition(self, name: str, topic_id: str, directory: str, config: PartitionConfig) -> Partition:
        """Raises TopicDeleted if there is no table because the topic was deleted, otherwise ObjectMissing."""
        try:
            return Partition(
                self.store,
                directory,
                self.clock,
                config,
                self._cache,
                lambda: self.remote,
                lambda: self.log_epochs.newest,
            )
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

    def name_of(self, topic_id: str) -> str | None:
        """The name of the topic with this id as last refreshed, None without one; does not ask the store."""
        return self._names.get(topic_id)

    def topic(self, name: str) -> Topic:
        """The topic `name`; one that is not cached is looked for in the metadata log. Raises UnknownTopic."""
        found = self._topics.get(name)
        if found is None:
            self.refresh()
            found = self._topics.get(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name!r}; check its name, or create it")
        return found


def _mirror_of(record: TopicRecord) -> str:
    return "" if record.mirrored is None else record.mirrored.mirror


def _only_partition(topic: Topic) -> Partition:
    """Raises InvalidConfig if there are several: a registry keeps its schemas in order."""
    if topic.partition_count != 1:
        raise InvalidConfig(
            f"topic {topic.name} has {topic.partition_count} partitions, and a registry keeps its schemas in "
            "a topic of one; name that in value.columns.schemas"
        )
    return topic.partition(0)


def contradicted(error: TopicDeleted) -> CorruptLog:
    """The error when a table says that its topic was deleted, and the metadata log that it exists."""
    return CorruptLog(
        f"{error.message}: but the metadata log says that the topic exists; run `lakelog fsck`, and restore "
        "the metadata log and the table from the same time"
    )
