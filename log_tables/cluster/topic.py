"""Topics: their names and their partitions."""

import re
import threading
from collections.abc import Callable

from log_tables.cluster.config import TopicConfig
from log_tables.errors import CorruptLog, InvalidTopicName, MirroredTopic, ObjectMissing, UnknownPartition
from log_tables.layout import (
    AUDIT,
    CONSUMER_OFFSETS,
    MAINTENANCE,
    MIRROR_GAPS,
    RESERVED_PREFIX,
    RESERVED_TOPICS,
    partition_directory,
    topic_directory,
)
from log_tables.limits import TOPIC_NAME_MAX_CHARS
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.schemas.schema import NO_SCHEMAS, NotedSchemas
from log_tables.topic_table.topic_table import TopicTable

_NO_SCHEMAS = NotedSchemas(NO_SCHEMAS)
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

_INSTEAD = {
    CONSUMER_OFFSETS: "read committed offsets at GET /consumers/{group}/offsets, or in the table "
    "consumer_offsets of `lakelog sql`",
    MAINTENANCE: "read what the jobs did in the table maintenance_runs of `lakelog sql`",
    MIRROR_GAPS: "read what mirrors could not copy in the table mirror_gaps of `lakelog sql`",
    AUDIT: "fetch its records, or read the table audit of `lakelog sql`",
}
"""Where users find what they would look for in an internal topic."""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless `name` is 1-249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`."""
    if not 1 <= len(name) <= TOPIC_NAME_MAX_CHARS:
        shown = name if len(name) <= 40 else f"{name[:40]}…"
        raise InvalidTopicName(
            f"the topic name {shown!r} has {len(name)} characters; use 1 to {TOPIC_NAME_MAX_CHARS}"
        )
    if name in (".", "..") or not _NAME.fullmatch(name):
        raise InvalidTopicName(
            f"the topic name {name!r} is not allowed; use letters, digits, '.', '_' and '-'"
        )


def is_internal(name: str) -> bool:
    """Whether a name is one of those that are reserved for topics of lakelog's own.

    Processes that can read the root read them. Clients do not, and only lakelog writes them. Other names may
    begin with two underscores: programs around Kafka make such topics.
    """
    return name in RESERVED_TOPICS or name.startswith(RESERVED_PREFIX)


def check_public(name: str) -> None:
    """Raise InvalidTopicName for the name of an internal topic, whether it exists or not."""
    if is_internal(name):
        shown = name if len(name) <= TOPIC_NAME_MAX_CHARS else f"{name[:40]}…"
        instead = _INSTEAD.get(name, "choose another topic")
        raise InvalidTopicName(f"the topic {shown!r} is internal to lakelog; {instead}")


def check_readable(name: str) -> None:
    """Raise InvalidTopicName for the name of an internal topic other than the audit log."""
    if name != AUDIT:
        check_public(name)


def check_writable(name: str) -> None:
    """Raise InvalidTopicName for a name that is not allowed, or is internal."""
    check_topic_name(name)
    check_public(name)


class Topic:
    """A topic. `topic_id` names its incarnation: a topic that is re-created has another."""

    def __init__(
        self,
        open_partition: Callable[[str, PartitionConfig], Partition],
        open_table: Callable[[str], TopicTable],
        name: str,
        topic_id: str,
        incarnation: int,
        partition_count: int,
        config: TopicConfig,
        schemas: Callable[[str], NotedSchemas] = lambda _: _NO_SCHEMAS,
    ) -> None:
        self._open_partition, self._open_table, self._schemas = open_partition, open_table, schemas
        self.name, self.topic_id, self.incarnation = name, topic_id, incarnation
        self.partition_count, self.config = partition_count, config
        self.home = ""
        """The directory of its tables, if that has not its name."""
        self.revived = 0
        """How often it was brought back after it had been deleted."""
        self.mirror = ""
        """The name of the mirror that makes its records; empty if its records are its own."""
        self._partitions: dict[int, Partition] = {}
        self._table: TopicTable | None = None
        self._lock = threading.Lock()
        # One of its own: to open the table may take as long as reading a large checkpoint.
        self._table_lock = threading.Lock()
        # One lock for each partition, so that many are opened at once where a store is far.
        self._opening: dict[int, threading.Lock] = {}

    @property
    def directory(self) -> str:
        return self.home or topic_directory(self.name, self.incarnation)

    @property
    def schemas(self) -> NotedSchemas:
        """The schemas that its values name."""
        return self._schemas(self.config.schema_source)

    def _partition_config(self) -> PartitionConfig:
        return self.config.partition_config(self.schemas)

    def table(self) -> TopicTable:
        """The one table over all partitions, opened at its first use. It lags behind them (`folding`).

        Raises CorruptLog without a table, ForeignCommit, UnsupportedTable.
        """
        with self._table_lock:
            if self._table is None:
                try:
                    self._table = self._open_table(self.directory)
                except ObjectMissing:
                    raise CorruptLog(
                        f"the table over topic {self.name} at {self.directory} is missing; make it "
                        "again with `lakelog root refold`"
                    ) from None
            return self._table

    def opened_table(self) -> TopicTable | None:
        """The table over all partitions if it is open in this process; no I/O."""
        return self._table

    def forget_table(self) -> None:
        """Open the table again at its next use: somebody may have made it again."""
        with self._table_lock:
            self._table = None

    def partition(self, partition: int) -> Partition:
        """The partition with this number, opened at its first use.

        Raises UnknownPartition, CorruptLog without a table.
        """
        opened = self._partitions.get(partition)
        if opened is not None:
            return opened
        if not 0 <= partition < self.partition_count:
            raise UnknownPartition(
                f"topic {self.name} has no partition {partition}; it has 0 to {self.partition_count - 1}"
            )
        with self._lock:
            opening = self._opening.setdefault(partition, threading.Lock())
        with opening:
            if partition not in self._partitions:
                log = self._opened(partition_directory(self.directory, partition))
                with self._lock:
                    log.config = self._partition_config()  # it may have changed since
                    self._partitions[partition] = log
            return self._partitions[partition]

    def _opened(self, directory: str) -> Partition:
        try:
            return self._open_partition(directory, self._partition_config())
        except ObjectMissing:
            raise CorruptLog(
                f"the metadata log names the table {directory}, which is missing, or whose log lacks version "
                "0; restore it from a backup"
            ) from None

    def is_open(self, partition: int) -> bool:
        """Whether the partition is open in this process: then `partition` does no I/O."""
        return partition in self._partitions

    def partitions(self) -> list[Partition]:
        """Every partition, in order."""
        return [self.partition(partition) for partition in range(self.partition_count)]

    def opened(self) -> list[tuple[int, Partition]]:
        """The partitions that are open in this process, with their numbers."""
        with self._lock:
            return sorted(self._partitions.items())

    def has_ended(self) -> bool:
        """Whether one of the tables that are open in this process has ended, as last refreshed; no I/O."""
        table = self.opened_table()
        if table is not None and table.snapshot.deleted:
            return True
        return any(log.snapshot.deleted for _, log in self.opened())

    def check_own(self, mirror: str = "") -> None:
        """Raise MirroredTopic unless its records are its own, or those of `mirror`, if that is named: nobody
        else changes it.
        """
        if self.mirror == mirror:
            return
        if not self.mirror:
            raise MirroredTopic(
                f"the topic {self.name} is no longer a copy that the mirror {mirror} makes: it was promoted"
            )
        raise MirroredTopic(
            f"the topic {self.name} is a copy that the mirror {self.mirror} makes, and read-only; write to "
            f"its source, or run `lakelog mirror promote {self.mirror} --topic {self.name}` first"
        )

    def update(self, partition_count: int, config: TopicConfig, mirror: str = "", revived: int = 0) -> None:
        """Set what the metadata log says now."""
        with self._lock:
            self.partition_count, self.config, self.mirror = partition_count, config, mirror
            self.revived = revived
            for partition in self._partitions.values():
                partition.config = self._partition_config()
