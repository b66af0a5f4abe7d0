"""A consumer group as records of its log, and restored from them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.classic_group import ClassicGroup, remembered
from coordinator.groups.events import TopicState
from coordinator.groups.state import transaction_state
from coordinator.groups.state.group import Group, newest_commit_ms
from coordinator.groups.state.member import Member, Partitions
from log_tables.cluster.group_log import (
    Act,
    ClassicKey,
    ClassicValue,
    GroupKey,
    GroupValue,
    Intent,
    IntentKey,
    Key,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    Retry,
    RetryKey,
    SettingsKey,
    SettingsValue,
    TransactionsKey,
    TransactionsValue,
    UndoKey,
    UndoValue,
    Value,
    is_deleted_name,
)
from log_tables.topic_partition import TopicPartition

_NEW = GroupValue(0)
"""The value of a group that has no record of its own yet."""


def group_record(group: Group) -> tuple[Key, Value | None]:
    """The record of the group as a whole."""
    return GroupKey(group.id), GroupValue(group.generation, group.idle_ms, group.principal)


def member_record(group: Group, member: Member) -> tuple[Key, Value | None]:
    """The record of `member`."""
    owned = _by_topic(member.owned)
    positions: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in member.positions.items():
        positions.setdefault(topic, {})[partition] = offset
    value = MemberValue(
        member.config,
        sorted(member.topics),
        member.pattern,
        member.assigned,
        owned,
        member.epoch,
        positions,
        {name: group.topics[name].topic_id for name in sorted({*owned, *positions}) if name in group.topics},
        None if member.starting is None else sorted(member.starting),
        *_named(member.context),
        member.kafka,
        _by_topic(member.revoking),
        member.previous_epoch,
        member.away,
    )
    return MemberKey(group.id, member.id), value


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _partitions(by_topic: Mapping[str, list[int]]) -> Partitions:
    return frozenset(TopicPartition(topic, p) for topic, listed in by_topic.items() for p in listed)


def _named(context: RequestContext | None) -> tuple[str, list[str], str]:
    if context is None:
        return "", [], ""
    return context.principal.name, [*context.principal.groups], context.host


def _configs(newest: Mapping[Key, Value | None]) -> dict[str, dict[str, str]]:
    return {
        key.group: value.configs
        for key, value in newest.items()
        if isinstance(key, SettingsKey) and isinstance(value, SettingsValue)
    }


def _acts(newest: Mapping[Key, Value | None]) -> dict[str, tuple[Act, ...]]:
    return {
        key.group: value.acts
        for key, value in newest.items()
        if isinstance(key, UndoKey) and isinstance(value, UndoValue)
    }


def _unstable(newest: Mapping[Key, Value | None]) -> dict[str, dict[str, PendingValue]]:
    found: dict[str, dict[str, PendingValue]] = {}
    for key, value in newest.items():
        if isinstance(key, PendingKey) and isinstance(value, PendingValue):
            found.setdefault(key.group, {})[key.id] = value
    return found


def restore(records: Iterable[tuple[Key, Value | None]], now_ms: float) -> dict[str, Group]:
    """The groups of `records`, which are in order; every member is as if it were heard of now.

    They know only the topic ids that their members have noted: a TopicsChanged must be their first event.
    """
    generations: dict[str, GroupValue] = {}
    members: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    offsets: defaultdict[str, dict[TopicPartition, OffsetValue]] = defaultdict(dict)
    kept: defaultdict[str, dict[TopicPartition, OffsetValue]] = defaultdict(dict)
    topics: defaultdict[str, dict[str, TopicState]] = defaultdict(dict)
    classic: dict[str, ClassicGroup] = {}
    counts: dict[str, TransactionsValue] = {}
    intents: defaultdict[str, dict[int, Intent]] = defaultdict(dict)
    retries: defaultdict[str, dict[str, Retry]] = defaultdict(dict)
    newest = dict(records)
    configs, unstable, acts = _configs(newest), _unstable(newest), _acts(newest)
    for key, value in newest.items():
        if value is None or isinstance(key, SettingsKey | ProducerKey | PendingKey | UndoKey):
            continue
        match key, value:
            case GroupKey(group), GroupValue():
                generations[group] = value
            case MemberKey(group, member), MemberValue():
                members[group][member] = _remembered(member, value, now_ms)
                topics[group] |= {name: TopicState(topic_id, 0) for name, topic_id in value.topic_ids.items()}
            case ClassicKey(group), ClassicValue():
                classic[group] = remembered(value, now_ms)
            case OffsetKey(group, topic, partition), OffsetValue():
                places = kept if is_deleted_name(topic) else offsets
                places[group][TopicPartition(topic, partition)] = value
            case TransactionsKey(group), TransactionsValue():
                counts[group] = value
            case IntentKey(group, number), Intent():
                intents[group][number] = value
            case RetryKey(group, name), Retry():
                retries[group][name] = value
            case _:
                raise AssertionError(f"{key} has the value {value}")
    groups = generations.keys() | members.keys() | offsets.keys() | counts.keys() | classic.keys()
    groups |= configs.keys() | unstable.keys() | acts.keys() | kept.keys()
    return {
        group: Group(
            group,
            generations.get(group, _NEW).generation,
            members[group],
            offsets[group],
            topics[group],
            idle_ms=generations.get(group, _NEW).idle_ms,
            principal=generations.get(group, _NEW).principal,
            committed_ms=newest_commit_ms(offsets[group]),
            transactions=transaction_state.remember(counts.get(group), intents[group], retries[group]),
            classic=classic.get(group, ClassicGroup()),
            configs=configs.get(group, {}),
            unstable=unstable.get(group, {}),
            acts=acts.get(group, ()),
            kept=kept[group],
        )
        for group in sorted(groups)
    }


def _remembered(member_id: str, value: MemberValue, now_ms: float) -> Member:
    return Member(
        member_id,
        value.config,
        now_ms,
        now_ms,
        frozenset(value.topics),
        value.pattern,
        value.assigned,
        _partitions(value.owned),
        value.epoch,
        {
            TopicPartition(topic, p): offset
            for topic, places in value.positions.items()
            for p, offset in places.items()
        },
        starting=None if value.starting is None else frozenset(value.starting),
        context=_context(value),
        kafka=value.kafka,
        revoking=_partitions(value.revoking),
        previous_epoch=value.previous_epoch,
        away=value.away,
        asked_ms=now_ms if value.revoking else None,
        has_news=value.kafka is not None,
    )


def _context(value: MemberValue) -> RequestContext | None:
    if not value.principal:
        return None
    return RequestContext(Principal(value.principal, tuple(value.principal_groups)), value.host)
