"""The configuration of a topic, by Kafka's names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from log_tables.cluster.setting import Setting
from log_tables.cluster.topic_settings import (
    AFTER_MAX_MS,
    AS_RETENTION,
    BEFORE_MAX_MS,
    COMPACT,
    DELETE,
    FOR_EVER,
    KAFKA_SETTINGS,
    PRODUCER,
    REFUSE,
    SETTINGS,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    VALUE_SCHEMAS,
)
from log_tables.columns.declaration import NOTHING, Declaration, parse
from log_tables.errors import InvalidConfig
from log_tables.layout import PROPERTY_FILE_RETENTION
from log_tables.limits import FILE_RETENTION_MS
from log_tables.partition.reader import PartitionConfig
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.decoder import decoder_of
from log_tables.schemas.schema import NO_SCHEMAS, Schema, Schemas
from log_tables.spelling import meant


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration of a topic: `overrides` are the settings that were set, by Kafka's names."""

    overrides: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, configs: Mapping[str, str], settings: Mapping[str, Setting] = SETTINGS) -> "TopicConfig":
        """The configuration with `configs`, all of which are among `settings`. Raises InvalidConfig."""
        _check_names(configs, settings)
        for name, value in configs.items():
            settings[name].check(value)
        config = cls(dict(configs))
        config._check_together()
        return config

    def _check_together(self) -> None:
        if self.compacted and self.remote_storage:
            raise InvalidConfig(
                f"cleanup.policy={self['cleanup.policy']!r} and remote.storage.enable='true' exclude "
                "each other, as compaction by key needs the whole log in one root; choose one of them"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms={self['min.compaction.lag.ms']!r} is more than "
                f"max.compaction.lag.ms={self['max.compaction.lag.ms']!r}; use at most that"
            )
        self._check_encoding()
        for unit in ("ms", "bytes"):
            local, whole = int(self[f"local.retention.{unit}"]), int(self[f"retention.{unit}"])
            if whole >= 0 and (local == FOR_EVER or local > whole):
                raise InvalidConfig(
                    f"local.retention.{unit}={str(local)!r} is more than retention.{unit}={str(whole)!r}; "
                    f"use at most that, or -2 for the value of retention.{unit}"
                )

    def _check_encoding(self) -> None:
        """Raise InvalidConfig for a format without what it needs, and for a schema that is none."""
        form, source, text = Format(self[VALUE_FORMAT]), self.schema_source, self[VALUE_SCHEMA]
        if text and form.kind is None:
            raise InvalidConfig(
                f"{VALUE_SCHEMA} needs {VALUE_FORMAT}=avro, protobuf or json-schema, and it is {form}"
            )
        if form in (Format.AVRO, Format.PROTOBUF) and not source and not text:
            raise InvalidConfig(
                f"{VALUE_FORMAT}={form} needs the schemas; set {VALUE_SCHEMAS} to topic:NAME, the URL of a "
                f"registry or files, or {VALUE_SCHEMA} to the one schema of all values"
            )
        schema = self.encoding.schema
        decoder = None if schema is None else decoder_of(schema, (0,) if form is Format.PROTOBUF else ())
        if isinstance(decoder, str):
            raise InvalidConfig(f"{VALUE_SCHEMA} cannot be used: {decoder}")

    def altered(
        self, changes: Mapping[str, str | None], settings: Mapping[str, Setting] = SETTINGS
    ) -> "TopicConfig":
        """This configuration with `changes`, all of which are among `settings`; None resets a setting to its
        default. Raises InvalidConfig.
        """
        _check_names(changes, settings)
        kept = {name: value for name, value in self.overrides.items() if name not in changes}
        changed = {name: value for name, value in changes.items() if value is not None}
        return self.parse({**kept, **changed}, KAFKA_SETTINGS)

    def __getitem__(self, name: str) -> str:
        """The effective value of a setting."""
        return self.overrides.get(name, KAFKA_SETTINGS[name].default)

    def as_dict(self) -> dict[str, str]:
        """Every setting that does something, with its effective value."""
        return {name: self[name] for name in SETTINGS}

    @property
    def compression(self) -> str:
        """How segments are compressed."""
        chosen = self["compression.type"]
        return SETTINGS["compression.type"].default if chosen == PRODUCER else chosen

    @property
    def max_message_bytes(self) -> int:
        return int(self["max.message.bytes"])

    def time_bounds_us(self, now_us: int) -> tuple[int, int] | None:
        """The least and the greatest time of a record that arrives now, in microseconds; None: it may have
        any, or gets that of its append.
        """
        if BEFORE_MAX_MS not in self.overrides and AFTER_MAX_MS not in self.overrides:
            return None  # as of nearly all topics, for each request
        if self["message.timestamp.type"] != "CreateTime":
            return None
        return now_us - 1_000 * int(self[BEFORE_MAX_MS]), now_us + 1_000 * int(self[AFTER_MAX_MS])

    @property
    def key_hash(self) -> str:
        """The one of KEY_HASHES that chooses the partition of a key."""
        return self["partitioner.hash"]

    @property
    def columns(self) -> Declaration:
        """The declared columns."""
        return _declared(self["value.columns"], self[VALUE_FORMAT], self[VALUE_SCHEMA])

    @property
    def encoding(self) -> Encoding:
        """How the values are encoded."""
        return _encoding(self[VALUE_FORMAT], self[VALUE_SCHEMA])

    @property
    def schema_source(self) -> str:
        """Where the schemas are that values name by id; "" for nowhere."""
        return self[VALUE_SCHEMAS]

    @property
    def required_columns(self) -> Declaration:
        """The columns that each value has to fit; none if what does not fit is kept."""
        return self.columns if self["value.columns.mode"] == REFUSE else NOTHING

    @property
    def needs_schemas(self) -> bool:
        """Whether a schema says if a value fits the columns that it has to: one may have to be compiled."""
        return bool(self.required_columns.columns) and not self.encoding.is_json

    @property
    def file_delete_delay_ms(self) -> int:
        return int(self["file.delete.delay.ms"])

    @property
    def topic_delete_delay_ms(self) -> int:
        """How long a deleted topic can be brought back; 0: not at all."""
        return int(self["topic.delete.delay.ms"])

    @property
    def deleted_kept_ms(self) -> int:
        """How long a deleted topic can be brought back, with the delay of its files; 0: not at all."""
        delay_ms = self.topic_delete_delay_ms
        return max(delay_ms, self.file_delete_delay_ms) if delay_ms else 0

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
        """The age at which records are deleted; None: never, as with a policy without deletion."""
        return self._kept("retention.ms")

    @property
    def retention_bytes(self) -> int | None:
        """The size above which records are deleted; None: never, as with a policy without deletion."""
        return self._kept("retention.bytes")

    def _kept(self, name: str) -> int | None:
        value = int(self[name])
        return None if value == FOR_EVER or DELETE not in self["cleanup.policy"].split(",") else value

    @property
    def delete_retention_ms(self) -> int:
        return int(self["delete.retention.ms"])

    @property
    def min_compaction_lag_ms(self) -> int:
        return int(self["min.compaction.lag.ms"])

    @property
    def max_compaction_lag_ms(self) -> int:
        """The age of a record that compaction by key has not met at which that is due."""
        return int(self["max.compaction.lag.ms"])

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
        if value == AS_RETENTION:
            return whole
        return None if value == FOR_EVER else value

    def partition_config(self, schemas: Schemas = NO_SCHEMAS) -> PartitionConfig:
        """The part of it that partitions need, whose values name `schemas`."""
        return PartitionConfig(
            self.compression,
            self["message.timestamp.type"] == "LogAppendTime",
            self.producer_expiration_ms,
            columns=self.columns,
            schemas=schemas,
        )

    def table_properties(self) -> dict[str, str]:
        """The table properties that show the configuration to Delta tools."""
        seconds = max(1, self.producer_expiration_ms // 1000)
        hours = -(-max(FILE_RETENTION_MS, self.replaced_file_ms) // 3_600_000)
        return {
            "delta.setTransactionRetentionDuration": f"interval {seconds} seconds",
            PROPERTY_FILE_RETENTION: f"interval {hours} hours",
        }


@lru_cache(maxsize=1024)
def _encoding(form: str, schema: str) -> Encoding:
    kind = Format(form).kind
    return Encoding(Format(form), Schema(kind, schema) if schema and kind is not None else None)


@lru_cache(maxsize=1024)
def _declared(columns: str, form: str, schema: str) -> Declaration:
    found = parse(columns)
    return Declaration(found.columns, _encoding(form, schema)) if found.columns else NOTHING


def _check_names(names: Iterable[str], settings: Mapping[str, Setting]) -> None:
    for name in names:
        if name not in settings:
            hint = meant(name[:100], settings) or f"the settings are {', '.join(settings)}"
            raise InvalidConfig(f"there is no topic setting {name[:100]!r}; {hint}")
