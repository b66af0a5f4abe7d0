"""Topics: their names, their configuration by Kafka's names, and their partitions."""

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from log_tables.clock import Clock
from log_tables.errors import CorruptLog, InvalidConfig, InvalidTopicName, ObjectMissing, UnknownPartition
from log_tables.layout import partition_directory, topic_directory
from log_tables.limits import RECORD_HARD_MAX_BYTES, RECORD_MAX_BYTES, TOPIC_NAME_MAX_CHARS
from log_tables.partition import Partition, PartitionConfig
from log_tables.segment import COMPRESSIONS, SegmentCache
from log_tables.store import Store

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_INTEGER = re.compile(r"-?\d{1,19}")


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
    """Internal topics begin with two underscores; users read them and never write them."""
    return name.startswith("__")


def check_writable(name: str) -> None:
    """Raise InvalidTopicName for a name that is not allowed, or of an internal topic."""
    check_topic_name(name)
    if is_internal(name):
        raise InvalidTopicName(f"the topic {name!r} is internal: lakelog alone writes it; choose another")


@dataclass(frozen=True, slots=True)
class Setting:
    """One topic setting: its Kafka name, default, meaning, and what values it takes."""

    name: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**63 - 1

    def check(self, value: str) -> None:
        """Raise InvalidConfig, naming the value and what is allowed."""
        if self.choices:
            if value not in self.choices:
                raise InvalidConfig(
                    f"{self.name}={value!r} is not known; use one of {', '.join(self.choices)}"
                )
        elif not _INTEGER.fullmatch(value) or not self.low <= int(value) <= self.high:
            raise InvalidConfig(f"{self.name}={value!r} is not a number from {self.low} to {self.high}")


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("compression.type", "zstd", "How segments are compressed.", choices=COMPRESSIONS),
        Setting(
            "max.message.bytes",
            str(RECORD_MAX_BYTES),
            "The largest record (key and value), in bytes.",
            low=1,
            high=RECORD_HARD_MAX_BYTES,
        ),
        Setting(
            "message.timestamp.type",
            "CreateTime",
            "Whether a record's timestamp is the producer's or the time of the append.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "file.delete.delay.ms",
            "60000",
            "How long the files of a deleted topic stay, in milliseconds.",
        ),
        Setting(
            "producer.id.expiration.ms",
            str(24 * 60 * 60 * 1000),
            "How long the sequences of an idle idempotent producer are remembered, in milliseconds.",
            low=1,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration of a topic: `overrides` are the settings that somebody set, by Kafka's names."""

    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> "TopicConfig":
        """Check and keep `configs`. Raises InvalidConfig."""
        for name, value in configs.items():
            setting = SETTINGS.get(name)
            if setting is None:
                raise InvalidConfig(
                    f"the topic setting {name!r} is not known; known are {', '.join(SETTINGS)}"
                )
            setting.check(value)
        return cls(dict(configs))

    def altered(self, changes: Mapping[str, str | None]) -> "TopicConfig":
        """With `changes` applied; None puts a setting back to its default. Raises InvalidConfig."""
        for name in changes:
            if name not in SETTINGS:
                raise InvalidConfig(
                    f"the topic setting {name!r} is not known; known are {', '.join(SETTINGS)}"
                )
        kept = {name: value for name, value in self.overrides.items() if name not in changes}
        return self.parse({**kept, **{name: value for name, value in changes.items() if value is not None}})

    def __getitem__(self, name: str) -> str:
        """The effective value of a setting."""
        return self.overrides.get(name, SETTINGS[name].default)

    def as_dict(self) -> dict[str, str]:
        """Every setting with its effective value."""
        return {name: self[name] for name in SETTINGS}

    @property
    def max_message_bytes(self) -> int:
        return int(self["max.message.bytes"])

    @property
    def file_delete_delay_ms(self) -> int:
        return int(self["file.delete.delay.ms"])

    @property
    def producer_expiration_ms(self) -> int:
        return int(self["producer.id.expiration.ms"])

    def partition_config(self) -> PartitionConfig:
        return PartitionConfig(
            self["compression.type"],
            self["message.timestamp.type"] == "LogAppendTime",
            self.producer_expiration_ms,
        )

    def table_properties(self) -> dict[str, str]:
        """What Delta tools should know of the configuration, as table properties."""
        seconds = max(1, self.producer_expiration_ms // 1000)
        return {"delta.setTransactionRetentionDuration": f"interval {seconds} seconds"}


class Topic:
    """A topic, of which `topic_id` names the incarnation: one deleted and made again has another."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        cache: SegmentCache,
        name: str,
        topic_id: str,
        incarnation: int,
        partition_count: int,
        config: TopicConfig,
    ) -> None:
        self._store, self._clock, self._cache = store, clock, cache
        self.name, self.topic_id, self.incarnation = name, topic_id, incarnation
        self.partition_count, self.config = partition_count, config
        self._partitions: dict[int, Partition] = {}
        self._lock = threading.Lock()
        # One for each, so that many can be opened side by side where a store is far.
        self._opening: dict[int, threading.Lock] = {}

    @property
    def directory(self) -> str:
        return topic_directory(self.name, self.incarnation)

    def partition(self, index: int) -> Partition:
        """Partition `index`, opened at its first use. Raises UnknownPartition, CorruptLog without a table."""
        opened = self._partitions.get(index)
        if opened is not None:
            return opened
        if not 0 <= index < self.partition_count:
            raise UnknownPartition(
                f"topic {self.name} has no partition {index}; it has 0 to {self.partition_count - 1}"
            )
        with self._lock:
            opening = self._opening.setdefault(index, threading.Lock())
        with opening:
            if index not in self._partitions:
                partition = self._opened(partition_directory(self.directory, index))
                with self._lock:
                    partition.config = self.config.partition_config()  # it may have changed meanwhile
                    self._partitions[index] = partition
            return self._partitions[index]

    def _opened(self, directory: str) -> Partition:
        config = self.config.partition_config()
        try:
            return Partition(self._store, directory, self._clock, config, self._cache)
        except ObjectMissing:
            raise CorruptLog(
                f"there is no table at {directory}, or its log lacks version 0, though the metadata log "
                "names it; restore it from a backup"
            ) from None

    def is_open(self, index: int) -> bool:
        """Whether `partition(index)` answers from memory."""
        return index in self._partitions

    def partitions(self) -> list[Partition]:
        """Every partition, in order."""
        return [self.partition(index) for index in range(self.partition_count)]

    def opened(self) -> list[tuple[int, Partition]]:
        """The partitions that are open in this process, with their numbers."""
        with self._lock:
            return sorted(self._partitions.items())

    def update(self, partition_count: int, config: TopicConfig) -> None:
        """Take over what the metadata log says now."""
        with self._lock:
            self.partition_count, self.config = partition_count, config
            for partition in self._partitions.values():
                partition.config = config.partition_config()
