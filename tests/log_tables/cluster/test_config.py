"""The settings of a topic: Kafka's names and meanings, checked one by one and together."""

from collections.abc import Callable

import pytest

from log_tables.cluster.config import TopicConfig
from log_tables.cluster.setting import WITHOUT_EFFECT
from log_tables.cluster.topic_settings import KAFKA_SETTINGS, SETTINGS
from log_tables.errors import InvalidConfig
from log_tables.limits import RECORD_HARD_MAX_BYTES, RECORD_MAX_BYTES
from log_tables.partition.reader import PartitionConfig


def test_what_nobody_set_has_its_default() -> None:
    config = TopicConfig.parse({"compression.type": "lz4"})
    assert config.as_dict() == {**{s.name: s.default for s in SETTINGS.values()}, "compression.type": "lz4"}
    assert config.overrides == {"compression.type": "lz4"}
    assert config.max_message_bytes == RECORD_MAX_BYTES
    assert config.file_delete_delay_ms == 60_000
    assert config.partition_config() == PartitionConfig("lz4", False, 86_400_000)


def test_every_default_is_a_value_that_may_be_set() -> None:
    TopicConfig.parse({setting.name: setting.default for setting in SETTINGS.values()})
    assert all(setting.meaning.endswith(".") for setting in SETTINGS.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("compression.type", "brotli"),
        ("compression.type", "ZSTD"),
        ("message.timestamp.type", ""),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(RECORD_HARD_MAX_BYTES + 1)),
        ("max.message.bytes", "1e3"),
        ("max.message.bytes", " 1"),
        ("max.message.bytes", "1" * 30),
        ("max.message.bytes", "٤٠٩٦"),
        ("min.cleanable.dirty.ratio", "0.٥"),
        ("file.delete.delay.ms", "-1"),
        ("producer.id.expiration.ms", "0"),
        ("producer.id.expiration.ms", "day"),
        ("segment.bytes", "1023"),
        ("segment.ms", "0"),
        ("merge.min.age.ms", "-1"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ","),
        ("retention.ms", "-2"),
        ("retention.bytes", "-2"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "5e-1"),
        ("min.cleanable.dirty.ratio", "-0.5"),
        ("remote.storage.enable", "True"),
        ("local.retention.ms", "-3"),
    ],
)
def test_a_setting_that_is_not_known_or_not_allowed_is_named(name: str, value: str) -> None:
    attempts: tuple[Callable[[], object], ...] = (
        lambda: TopicConfig.parse({name: value}),
        lambda: TopicConfig().altered({name: value}),
    )
    for attempt in attempts:
        with pytest.raises(InvalidConfig) as raised:
            attempt()
        assert name in raised.value.message


def test_altering_keeps_the_rest_and_none_is_the_default_again() -> None:
    config = TopicConfig.parse({"compression.type": "lz4", "max.message.bytes": "5"})
    changed = config.altered({"max.message.bytes": None, "file.delete.delay.ms": "7"})
    assert changed.overrides == {"compression.type": "lz4", "file.delete.delay.ms": "7"}
    assert config.altered({"max.message.bytes": None})["max.message.bytes"] == str(RECORD_MAX_BYTES)
    with pytest.raises(InvalidConfig):
        config.altered({"no.such.setting": None})


def test_a_table_property_says_how_long_producers_are_remembered() -> None:
    def told(milliseconds: int) -> str:
        config = TopicConfig.parse({"producer.id.expiration.ms": str(milliseconds)})
        return config.table_properties()["delta.setTransactionRetentionDuration"]

    assert told(90_000) == "interval 90 seconds"
    assert told(1) == "interval 1 seconds"


@pytest.mark.parametrize(
    ("delay_ms", "told"),
    [(None, "24 hours"), (3_600_000, "24 hours"), (86_400_001, "25 hours"), (7 * 86_400_000, "168 hours")],
)
def test_the_vacuum_of_another_tool_is_told_to_keep_files_for_as_long_as_our_own(
    delay_ms: int | None, told: str
) -> None:
    config = TopicConfig.parse({} if delay_ms is None else {"compaction.file.delete.delay.ms": str(delay_ms)})
    assert config.table_properties()["delta.deletedFileRetentionDuration"] == f"interval {told}"
    with pytest.raises(InvalidConfig, match="use a whole number from 3600000"):
        TopicConfig.parse({"compaction.file.delete.delay.ms": "3599999"})


def test_nothing_is_deleted_that_nobody_asked_to_delete() -> None:
    config = TopicConfig()
    assert (config.retention_ms, config.retention_bytes) == (None, None)
    assert (config.local_retention_ms, config.local_retention_bytes) == (None, None)
    assert not config.compacted
    assert not config.remote_storage


@pytest.mark.parametrize(
    ("policy", "compacted", "retention_ms"),
    [
        ("delete", False, 5),
        ("compact", True, None),
        ("compact,delete", True, 5),
        ("delete,compact", True, 5),
        ("", False, None),
    ],
)
def test_retention_acts_only_where_the_policy_deletes(
    policy: str, compacted: bool, retention_ms: int | None
) -> None:
    config = TopicConfig.parse({"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "6"})
    assert config.compacted is compacted
    assert config.retention_ms == retention_ms
    assert config.retention_bytes == (None if retention_ms is None else 6)


def test_the_local_part_is_kept_as_long_as_the_whole_by_default() -> None:
    config = TopicConfig.parse({"retention.ms": "9", "retention.bytes": "90"})
    assert (config.local_retention_ms, config.local_retention_bytes) == (9, 90)
    config = config.altered({"local.retention.ms": "3", "local.retention.bytes": "30"})
    assert (config.local_retention_ms, config.local_retention_bytes) == (3, 30)
    assert TopicConfig.parse({"local.retention.ms": "-1"}).local_retention_ms is None


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compact", "remote.storage.enable": "true"},
        {"cleanup.policy": "compact,delete", "remote.storage.enable": "true"},
        {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
        {"retention.ms": "5", "local.retention.ms": "6"},
        {"retention.ms": "5", "local.retention.ms": "-1"},
        {"retention.bytes": "5", "local.retention.bytes": "6"},
    ],
)
def test_settings_that_exclude_each_other_are_refused_together(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as raised:
        TopicConfig.parse(configs)
    assert all(name in raised.value.message for name in configs)
    *kept, last = configs
    with pytest.raises(InvalidConfig):
        TopicConfig.parse({name: configs[name] for name in kept}).altered({last: configs[last]})


def test_a_ratio_is_a_number() -> None:
    assert TopicConfig().min_cleanable_dirty_ratio == 0.5
    assert TopicConfig.parse({"min.cleanable.dirty.ratio": "1"}).min_cleanable_dirty_ratio == 1.0


def test_settings_without_effect_are_taken_where_they_are_asked_for_and_kept_everywhere() -> None:
    given = {name: setting.default for name, setting in WITHOUT_EFFECT.items()}
    config = TopicConfig.parse({**given, "min.insync.replicas": "2"}, KAFKA_SETTINGS)
    assert config.altered({"retention.ms": "5"})["min.insync.replicas"] == "2"
    assert not given.keys() & config.as_dict().keys()
    assert not given.keys() & SETTINGS.keys()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: TopicConfig.parse({"min.insync.replicas": "2"}),
        lambda: config.altered({"min.insync.replicas": None}),
    )
    for attempt in attempts:
        with pytest.raises(InvalidConfig, match=r"no topic setting 'min\.insync\.replicas'"):
            attempt()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.compaction.lag.ms", "0"),
        ("message.timestamp.after.max.ms", "-1"),
        ("remote.log.copy.disable", "true"),
        ("min.insync.replicas", "0"),
        ("leader.replication.throttled.replicas", "0:1,"),
    ],
)
def test_a_promise_that_is_not_kept_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        TopicConfig.parse({name: value}, KAFKA_SETTINGS)
    assert name in raised.value.message


def test_producer_is_another_word_for_the_default_compression() -> None:
    config = TopicConfig.parse({"compression.type": "producer"})
    assert config.overrides == {"compression.type": "producer"}
    assert config.partition_config().compression == SETTINGS["compression.type"].default
