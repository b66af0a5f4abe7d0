"""The configuration of a topic, by Kafka's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from log_tables.columns.declaration import NOTHING, Declaration, parse
from log_tables.errors import InvalidConfig
from log_tables.layout import PROPERTY_FILE_RETENTION
from log_tables.limits import (
    DELETE_RETENTION_MS,
    FILE_RETENTION_MS,
    MIB,
    RECORD_HARD_MAX_BYTES,
    RECORD_MAX_BYTES,
    REPLACED_FILE_RETENTION_MS,
)
from log_tables.partition.reader import PartitionConfig
from log_tables.segments.segment import COMPRESSIONS

COMPACT, DELETE = "compact", "delete"
KEEP, REFUSE = "keep", "refuse"

_DAY_MS = 24 * 60 * 60 * 1000
_FOR_EVER = -1
_AS_RETENTION = -2
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_RATIO = re.compile(r"0(\.[0-9]{1,15})?|1(\.0{1,15})?")


@dataclass(frozen=True, slots=True)
class Setting:
    """A topic setting: its Kafka name, default, meaning and values.

    Its values are `choices`, or without these whole numbers from `low` to `high`.
    """

    name: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**63 - 1

    def check(self, value: str) -> None:
        """Raise InvalidConfig for a value that the setting cannot have."""
        if self.choices:
            if value not in self.choices:
                raise InvalidConfig(
                    f"{self.name}={value!r} is not one of its values; use one of {', '.join(self.choices)}"
                )
        elif not _INTEGER.fullmatch(value) or not self.low <= int(value) <= self.high:
            raise InvalidConfig(
                f"{self.name}={value!r} is not allowed; use a whole number from {self.low} to {self.high}"
            )


class Ratio(Setting):
    """A setting that is a fraction from 0 to 1."""

    def check(self, value: str) -> None:
        if not _RATIO.fullmatch(value):
            raise InvalidConfig(
                f"{self.name}={value!r} is not allowed; use a fraction from 0 to 1, such as 0.5"
            )


class Columns(Setting):
    """A setting that declares columns."""

    def check(self, value: str) -> None:
        parse(value)


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
        Columns("value.columns", "", "The typed columns that are made of the JSON values, in Spark's DDL."),
        Setting(
            "value.columns.mode",
            KEEP,
            "Whether a record that does not fit its columns is kept, without them, or refused.",
            choices=(KEEP, REFUSE),
        ),
        Setting(
            "file.delete.delay.ms",
            "60000",
            "How long the files of a deleted topic are kept, in milliseconds.",
        ),
        Setting(
            "producer.id.expiration.ms",
            str(_DAY_MS),
            "How long the sequences of an idle idempotent producer are remembered, in milliseconds.",
            low=1,
        ),
        Setting(
            "segment.bytes",
            str(128 * MIB),
            "The size up to which small segments are merged into one, in compressed bytes.",
            low=1024,
            high=1024 * MIB,
        ),
        Setting(
            "segment.ms",
            str(7 * _DAY_MS),
            "The longest span of append times that a merge puts into one segment, in milliseconds.",
            low=1,
        ),
        Setting(
            "merge.min.age.ms",
            "60000",
            "The age from which a segment may be merged or moved, in milliseconds.",
        ),
        Setting(
            "compaction.file.delete.delay.ms",
            str(REPLACED_FILE_RETENTION_MS),
            "How long a file stays that a merge or a compaction by key has replaced, in milliseconds.",
            low=REPLACED_FILE_RETENTION_MS,
            high=3650 * _DAY_MS,
        ),
        Setting(
            "cleanup.policy",
            DELETE,
            "Whether retention deletes old records, or compaction by key keeps only the newest, or both.",
            choices=(DELETE, COMPACT, f"{COMPACT},{DELETE}", f"{DELETE},{COMPACT}"),
        ),
        Setting(
            "retention.ms",
            str(_FOR_EVER),
            "How long records are kept, in milliseconds; -1 is for ever.",
            low=_FOR_EVER,
        ),
        Setting(
            "retention.bytes",
            str(_FOR_EVER),
            "The size above which the oldest segments of a partition go, in compressed bytes; -1 is none.",
            low=_FOR_EVER,
        ),
        Setting(
            "delete.retention.ms",
            str(DELETE_RETENTION_MS),
            "How long compaction by key keeps a tombstone after it first met it, in milliseconds.",
        ),
        Setting(
            "min.compaction.lag.ms",
            "0",
            "The age below which compaction by key leaves a record alone, in milliseconds.",
        ),
        Ratio(
            "min.cleanable.dirty.ratio",
            "0.5",
            "The fraction of the log that has to be new before it is compacted by key.",
        ),
        Setting(
            "remote.storage.enable",
            "false",
            "Whether old segments move to the remote root.",
            choices=("false", "true"),
        ),
        Setting(
            "local.retention.ms",
            str(_AS_RETENTION),
            "How long records stay in the local root, in milliseconds; -2 is retention.ms, -1 for ever.",
            low=_AS_RETENTION,
        ),
        Setting(
            "local.retention.bytes",
            str(_AS_RETENTION),
            "How much of a partition stays in the local root, in bytes; -2 is retention.bytes, -1 all.",
            low=_AS_RETENTION,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration of a topic: `overrides` are the settings that were set, by Kafka's names."""

    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, configs: Mapping[str, str]) -> "TopicConfig":
        """The configuration with the settings `configs`. Raises InvalidConfig."""
        for name, value in configs.items():
            setting = SETTINGS.get(name)
            if setting is None:
                raise InvalidConfig(
                    f"there is no topic setting {name!r}; the settings are {', '.join(SETTINGS)}"
                )
            setting.check(value)
        config = cls(dict(configs))
        config._check_together()
        return config

    def _check_together(self) -> None:
        if self.compacted and self.remote_storage:
            raise InvalidConfig(
                f"cleanup.policy={self['cleanup.policy']!r} and remote.storage.enable='true' exclude "
                "each other, as compaction by key needs the whole log in one root; choose one of them"
            )
        for unit in ("ms", "bytes"):
            local, whole = int(self[f"local.retention.{unit}"]), int(self[f"retention.{unit}"])
            if whole >= 0 and (local == _FOR_EVER or local > whole):
                raise InvalidConfig(
                    f"local.retention.{unit}={str(local)!r} is more than retention.{unit}={str(whole)!r}; "
                    f"use at most that, or -2 for the value of retention.{unit}"
                )

    def altered(self, changes: Mapping[str, str | None]) -> "TopicConfig":
        """This configuration with `changes`; None resets a setting to its default. Raises InvalidConfig."""
        for name in changes:
            if name not in SETTINGS:
                raise InvalidConfig(
                    f"there is no topic setting {name!r}; the settings are {', '.join(SETTINGS)}"
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
    def columns(self) -> Declaration:
        """The declared columns."""
        return parse(self["value.columns"])

    @property
    def required_columns(self) -> Declaration:
        """The columns that each value has to fit; none if what does not fit is kept."""
        return self.columns if self["value.columns.mode"] == REFUSE else NOTHING

    @property
    def file_delete_delay_ms(self) -> int:
        return int(self["file.delete.delay.ms"])

    @property
    def producer_expiration_ms(self) -> int:
        return int(self["producer.id.expiration.ms"])

    @property
    def segment_bytes(self) -> int:
        return int(self["segment.bytes"])

    @property
    def segment_ms(self) -> int:
        return int(self["segment.ms"])

    @property
    def merge_min_age_ms(self) -> int:
        return int(self["merge.min.age.ms"])

    @property
    def replaced_file_ms(self) -> int:
        """How long a file stays that a merge or a compaction by key has replaced."""
        return int(self["compaction.file.delete.delay.ms"])

    @property
    def compacted(self) -> bool:
        """Whether compaction by key keeps only the newest record of each key."""
        return COMPACT in self["cleanup.policy"].split(",")

    @property
    def retention_ms(self) -> int | None:
        """The age at which records are deleted; None: never, as with a policy of compaction alone."""
        return self._kept("retention.ms")

    @property
    def retention_bytes(self) -> int | None:
        """The size above which records are deleted; None: never, as with a policy of compaction alone."""
        return self._kept("retention.bytes")

    def _kept(self, name: str) -> int | None:
        value = int(self[name])
        return None if value == _FOR_EVER or DELETE not in self["cleanup.policy"].split(",") else value

    @property
    def delete_retention_ms(self) -> int:
        return int(self["delete.retention.ms"])

    @property
    def min_compaction_lag_ms(self) -> int:
        return int(self["min.compaction.lag.ms"])

    @property
    def min_cleanable_dirty_ratio(self) -> float:
        return float(self["min.cleanable.dirty.ratio"])

    @property
    def remote_storage(self) -> bool:
        return self["remote.storage.enable"] == "true"

    @property
    def local_retention_ms(self) -> int | None:
        """The age at which segments move to the remote root; None: age moves none."""
        return self._local("ms", self.retention_ms)

    @property
    def local_retention_bytes(self) -> int | None:
        """The size above which segments move to the remote root; None: size moves none."""
        return self._local("bytes", self.retention_bytes)

    def _local(self, unit: str, whole: int | None) -> int | None:
        value = int(self[f"local.retention.{unit}"])
        if value == _AS_RETENTION:
            return whole
        return None if value == _FOR_EVER else value

    def partition_config(self) -> PartitionConfig:
        return PartitionConfig(
            self["compression.type"],
            self["message.timestamp.type"] == "LogAppendTime",
            self.producer_expiration_ms,
            columns=self.columns,
        )

    def table_properties(self) -> dict[str, str]:
        """The table properties that show the configuration to Delta tools."""
        seconds = max(1, self.producer_expiration_ms // 1000)
        hours = -(-max(FILE_RETENTION_MS, self.replaced_file_ms) // 3_600_000)
        return {
            "delta.setTransactionRetentionDuration": f"interval {seconds} seconds",
            PROPERTY_FILE_RETENTION: f"interval {hours} hours",
        }
