"""The configuration of a topic, by Kafka's names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from log_tables.errors import InvalidConfig
from log_tables.limits import DELETE_RETENTION_MS, MIB, RECORD_HARD_MAX_BYTES, RECORD_MAX_BYTES
from log_tables.partition.partition import PartitionConfig
from log_tables.segments.segment import COMPRESSIONS

COMPACT, DELETE = "compact", "delete"

_DAY_MS = 24 * 60 * 60 * 1000
_FOR_EVER = -1
_AS_RETENTION = -2
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_RATIO = re.compile(r"0(\.[0-9]{1,15})?|1(\.0{1,15})?")


@dataclass(frozen=True, slots=True)
class Setting:
    """One topic setting: its Kafka name, default, meaning, and what values it takes.

    These are `choices`, else whole numbers from `low` to `high`.
    """

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


class Ratio(Setting):
    """A setting that is a fraction from 0 to 1."""

    def check(self, value: str) -> None:
        if not _RATIO.fullmatch(value):
            raise InvalidConfig(f"{self.name}={value!r} is not a fraction from 0 to 1; use one such as 0.5")


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
            "The longest time of appends that a merge puts into one segment, in milliseconds.",
            low=1,
        ),
        Setting(
            "merge.min.age.ms",
            "60000",
            "How long a segment is left alone before it may be merged or moved, in milliseconds.",
        ),
        Setting(
            "cleanup.policy",
            DELETE,
            "Whether old records are deleted (by retention), or all but the newest of each key, or both.",
            choices=(DELETE, COMPACT, f"{COMPACT},{DELETE}", f"{DELETE},{COMPACT}"),
        ),
        Setting(
            "retention.ms",
            str(_FOR_EVER),
            "How long records are kept, in milliseconds; -1 for ever.",
            low=_FOR_EVER,
        ),
        Setting(
            "retention.bytes",
            str(_FOR_EVER),
            "How large a partition may grow before its oldest segments go, in compressed bytes; -1 any size.",
            low=_FOR_EVER,
        ),
        Setting(
            "delete.retention.ms",
            str(DELETE_RETENTION_MS),
            "How long a compaction by key leaves the tombstones that it has met, in milliseconds.",
        ),
        Setting(
            "min.compaction.lag.ms",
            "0",
            "How long a record is safe from compaction by key, in milliseconds.",
        ),
        Ratio(
            "min.cleanable.dirty.ratio",
            "0.5",
            "The part of the log that has to be new before it is compacted by key.",
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
        config = cls(dict(configs))
        config._check_together()
        return config

    def _check_together(self) -> None:
        if self.compacted and self.remote_storage:
            raise InvalidConfig(
                f"cleanup.policy={self['cleanup.policy']!r} and remote.storage.enable='true' exclude "
                "each other: a compaction by key needs the whole log in one place; choose one"
            )
        for unit in ("ms", "bytes"):
            local, whole = int(self[f"local.retention.{unit}"]), int(self[f"retention.{unit}"])
            if whole >= 0 and (local == _FOR_EVER or local > whole):
                raise InvalidConfig(
                    f"local.retention.{unit}={str(local)!r} is more than retention.{unit}={str(whole)!r}; "
                    "a part cannot stay longer than the whole"
                )

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
    def compacted(self) -> bool:
        """Whether all but the newest record of each key go."""
        return COMPACT in self["cleanup.policy"].split(",")

    @property
    def retention_ms(self) -> int | None:
        """None keeps records however old: so does a policy that is compaction by key alone."""
        return self._kept("retention.ms")

    @property
    def retention_bytes(self) -> int | None:
        """None keeps records however many, as `retention_ms` does."""
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
        """After which age segments move to the remote root; None when they never do for their age."""
        return self._local("ms", self.retention_ms)

    @property
    def local_retention_bytes(self) -> int | None:
        """Beyond which size segments move to the remote root; None when they never do for their size."""
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
        )

    def table_properties(self) -> dict[str, str]:
        """What Delta tools should know of the configuration, as table properties."""
        seconds = max(1, self.producer_expiration_ms // 1000)
        return {"delta.setTransactionRetentionDuration": f"interval {seconds} seconds"}
