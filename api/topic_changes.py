"""Topics made, grown and deleted for a caller: checked, charged, done and audited alike at every door.

A codec of a door makes the arguments of a request, and the answer of a result or an error. `plan_…` is the
dry run of a change: it raises what the change would be refused for, but lacking rights and a quota.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from api.client_topics import TopicDescription, describe_topic, describe_topics, with_own_topic
from api.gateway import Gateway
from api.scalars import microseconds
from coordinator.access.caller import Caller
from ingest.buffer import RETRY_AFTER_S
from log_tables.cluster import metadata_history
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin import restore_admin, topic_admin, undelete
from log_tables.cluster.admin.restore_admin import Restoration, plan_restore
from log_tables.cluster.admin.undelete import Deletion
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_history import Difference, TopicHistory, TopicVersion
from log_tables.cluster.setting import Setting
from log_tables.cluster.topic import Topic, check_writable
from log_tables.cluster.topic_settings import SETTINGS, VALUE_SCHEMAS
from log_tables.errors import InvalidArgument, PartitionsMaxReached, UnknownTopic
from log_tables.limits import PARTITIONS_MAX
from log_tables.schemas.source import topic_of
from log_tables.table.restore import IsBefore

Change = Callable[[TopicConfig], TopicConfig]


def create_topic(
    here: Gateway,
    asked: Caller,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    settings: Mapping[str, Setting] = SETTINGS,
) -> TopicDescription:
    """Create a topic with `configs` of `settings`; blocking.

    Raises AuthorizationFailed, PartitionsMaxReached, QuotaReached, TopicExists, InvalidTopicName,
    InvalidConfig, InvalidArgument.
    """
    asked.check_create(name)
    facts = {"partitions": partitions, "configs": dict(configs)}
    with asked.changing("CreateTopics", ResourceType.TOPIC, name, **facts):
        _check_source(asked, configs.get(VALUE_SCHEMAS, ""))
        _check_room(here, partitions)
        asked.charge_changes(partitions)
        made = topic_admin.create_topic(here.cluster, name, partitions, configs, settings=settings)
        return TopicDescription(here, made)


def with_readable_source(asked: Caller, change: Change) -> Change:
    """`change` of a topic's configuration, which raises AuthorizationFailed if it names a topic with schemas
    that the caller may not read: whoever may describe the topic reads them through it.
    """

    def changed(config: TopicConfig) -> TopicConfig:
        after = change(config)
        if after.schema_source != config.schema_source:
            _check_source(asked, after.schema_source)
        return after

    return changed


def _check_source(asked: Caller, source: str) -> None:
    topic = topic_of(source)
    if topic is not None:
        asked.check(Operation.READ, ResourceType.TOPIC, topic)


@dataclass(frozen=True, slots=True)
class Revert:
    """A revert of a topic's settings to those of `version`: what changes."""

    version: TopicVersion
    changes: Sequence[Difference]


def topic_history(here: Gateway, name: str) -> TopicHistory:
    """The versions of the settings of a topic, which may be deleted; blocking.

    Raises NotFound, InvalidTopicName, CorruptLog.
    """
    check_writable(name)
    here.cluster.refresh()
    return metadata_history.topic_history(here.cluster.metadata_log.partition, name)


def plan_revert(
    here: Gateway, asked: Caller, name: str, version: int | None, time_ms: int | None
) -> tuple[Revert, Change]:
    """The revert that `revert_topic` would make, and its change of the configuration; blocking.

    Raises as `revert_topic`, but of a copy that a mirror makes, whose history is shown as any other.
    """
    wanted = topic_history(here, name).find(version, time_ms)
    change = with_readable_source(asked, topic_admin.reverted(wanted.record.configs))
    topic = describe_topic(here, name)
    topic_admin.check_change(here.cluster, name, change, mirror=topic.mirror)
    now = topic.config.overrides
    changes = [*metadata_history.differences(now, wanted.record.configs)]
    return Revert(wanted, changes), change


def revert_topic(here: Gateway, asked: Caller, name: str, version: int | None, time_ms: int | None) -> Revert:
    """Give a topic the settings of an earlier version, or of a time (milliseconds since 1970), as one
    alteration; blocking.

    Raises AuthorizationFailed, NotFound, OffsetOutOfRange for a time before its history, UnknownTopic,
    InvalidConfig for a setting that cannot be had again, MirroredTopic.
    """
    asked.check(Operation.ALTER_CONFIGS, ResourceType.TOPIC, name)
    found, change = plan_revert(here, asked, name, version, time_ms)
    facts = {each.name: each.new for each in found.changes}
    with asked.changing(
        "RevertConfigs", ResourceType.TOPIC, name, configs=facts, version=found.version.version
    ):
        if found.changes:
            topic_admin.change_config(here.cluster, name, change)
    return found


def plan_creation(
    here: Gateway,
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    settings: Mapping[str, Setting] = SETTINGS,
) -> TopicConfig:
    """The configuration of the topic that `create_topic` would make; blocking."""
    _check_room(here, partitions)
    return topic_admin.check_creation(here.cluster, name, partitions, configs, settings=settings)


def add_partitions(
    here: Gateway, asked: Caller, name: str, count: int, check: Callable[[int], None] = lambda _: None
) -> TopicDescription:
    """Grow a topic to `count` partitions; blocking. `check` is a door's own, of the number of new ones.

    Raises AuthorizationFailed, UnknownTopic, InvalidTopicName, InvalidArgument, MirroredTopic,
    PartitionsMaxReached, QuotaReached, and as `check`.
    """
    asked.check(Operation.ALTER, ResourceType.TOPIC, name)
    with asked.changing("CreatePartitions", ResourceType.TOPIC, name, partitions=count):
        more = plan_growth(here, name, count)
        check(more)
        asked.charge_changes(more)
        return TopicDescription(here, topic_admin.add_partitions(here.cluster, name, count))


def plan_growth(here: Gateway, name: str, count: int) -> int:
    """How many partitions `add_partitions` would make; blocking."""
    check_writable(name)
    topic = describe_topic(here, name)
    topic.check_own()
    known = topic.partition_count
    topic_admin.check_growth(name, known, count)
    _check_room(here, count - known)
    return count - known


def delete_topic(here: Gateway, asked: Caller, name: str, topic_id: str | None = None) -> None:
    """Delete a topic, with a `topic_id` only the one that has it; blocking.

    Raises AuthorizationFailed, UnknownTopic, InvalidTopicName, MirroredTopic, QuotaReached.
    """
    asked.check(Operation.DELETE, ResourceType.TOPIC, name)
    with asked.changing("DeleteTopics", ResourceType.TOPIC, name):
        check_writable(name)
        topic = describe_topic(here, name)
        topic.check_own()
        asked.charge_changes(topic.partition_count)
        topic_admin.delete_topic(here.cluster, name, topic_id)


def deletions(here: Gateway, asked: Caller) -> list[Deletion]:
    """The deleted topics that can be brought back and that the caller may describe, as of now; blocking."""
    here.cluster.refresh()
    return [each for each in undelete.deletions(here.cluster) if asked.describes(each.name)]


def undelete_topic(
    here: Gateway, asked: Caller, name: str, topic_id: str | None = None, new_name: str | None = None
) -> TopicDescription:
    """Bring a deleted topic back, under `new_name` if that is given; blocking. It takes the right to delete
    it, and to create one of the name that it gets; and to read it if that is another name, as whose records
    others may read them.

    Raises AuthorizationFailed, UnknownTopic, TopicExists, InvalidTopicName, PartitionsMaxReached,
    QuotaReached, Damaged.
    """
    wanted = name if new_name is None else new_name
    asked.check(Operation.DELETE, ResourceType.TOPIC, name)
    check_writable(name)
    asked.check_create(wanted)
    if wanted != name:
        asked.check(Operation.READ, ResourceType.TOPIC, name)
    with asked.changing("UndeleteTopic", ResourceType.TOPIC, name, new_name=wanted):
        partitions = plan_undelete(here, name, topic_id)
        asked.charge_changes(partitions)
        topic = undelete.undelete_topic(here.cluster, name, topic_id, new_name)
        here.access.follow()
        return TopicDescription(here, topic)


def plan_undelete(here: Gateway, name: str, topic_id: str | None) -> int:
    """How many partitions would come back; 0 for no such deleted topic, as in a repeat. Blocking."""
    here.cluster.refresh()
    partitions = 0
    with suppress(UnknownTopic):
        partitions = undelete.find_deletion(here.cluster, name, topic_id).partitions
    _check_room(here, partitions)
    return partitions


def purge_topic(here: Gateway, asked: Caller, name: str, topic_id: str | None = None) -> Deletion:
    """Free the space of a deleted topic, which cannot come back then; blocking.

    Raises AuthorizationFailed, UnknownTopic, QuotaReached.
    """
    asked.check(Operation.DELETE, ResourceType.TOPIC, name)
    with asked.changing("PurgeTopic", ResourceType.TOPIC, name):
        check_writable(name)
        here.cluster.refresh()
        asked.charge_changes(undelete.find_deletion(here.cluster, name, topic_id).partitions)
        return undelete.purge_topic(here.cluster, name, topic_id)


def state_wanted(version: int | None, time: str | None, partition: int | None) -> IsBefore:
    """The state to which `restore_topic` goes back: of a `version` of the table of a `partition`, or of a
    `time`, as milliseconds since 1970 or ISO 8601. Raises InvalidArgument.
    """
    if version is not None and partition is None:
        raise InvalidArgument("each partition has versions of its own; name the partition, or a time")
    return restore_admin.wanted(version, None if time is None else microseconds(time) // 1000)


def restore_topic(
    here: Gateway,
    asked: Caller,
    name: str,
    is_before: IsBefore,
    partition: int | None = None,
    dry_run: bool = False,
) -> list[Restoration]:
    """Bring back deleted records of a topic, or look what would come back; blocking.

    Raises AuthorizationFailed, UnknownTopic, UnknownPartition, InvalidTopicName, MirroredTopic, Conflict.
    """
    asked.check(Operation.DELETE, ResourceType.TOPIC, name)
    act = plan_restore if dry_run else restore_admin.restore_topic
    now_ms = here.clock.now_ms()

    def restored(topic: Topic) -> list[Restoration]:
        return act(topic, now_ms, is_before, partition)

    if dry_run:
        return with_own_topic(here, name, restored)
    with asked.changing("RestoreRecords", ResourceType.TOPIC, name, partition=partition):
        return with_own_topic(here, name, restored)


def _check_room(here: Gateway, more: int) -> None:
    """Raise PartitionsMaxReached when `more` partitions would exceed `partitions_max`; blocking.

    More than PARTITIONS_MAX new ones are left to the check of the topic itself, which no repeat can pass.
    """
    existing = sum(topic.partition_count for topic in describe_topics(here))
    limit = here.settings.partitions_max
    if more <= PARTITIONS_MAX and existing + more > limit:
        raise PartitionsMaxReached(
            f"{existing} existing and {more} new partitions are more than partitions_max allows, {limit}; "
            "delete topics first",
            retry_after_s=RETRY_AFTER_S,
        )
