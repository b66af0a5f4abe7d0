"""A consumer group as records of its log, and restored from them.

The records before the positions that a group notes are made durable first. A position that survives a power
cut must not be beyond a record that does not: another record would get that offset, and the group would never
be given it (docs/decisions/0038-a-position-rests-on-durable-records.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.classic_group import ClassicGroup, remembered
from coordinator.groups.events import TopicState
from coordinator.groups.state import transaction_state
from coordinator.groups.state.group import Group, Member, newest_commit_ms
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
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
    Records,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
    Value,
)
from log_tables.cluster.topic import Topic
from log_tables.errors import Damaged, NotFound
from log_tables.layout import partition_directory
from log_tables.table.commit import make_table_durable
from log_tables.topic_partition import TopicPartition


class NotedPosition(NamedTuple):
    """The offset of the next record to read in a partition of the topic's incarnation `topic_id`."""

    topic: str
    topic_id: str
    partition: int
    offset: int


def new_positions(before: Group, records: Records) -> list[NotedPosition]:
    """The offsets and positions that `records` note and the group `before` them did not have."""
    found = []
    for key, value in records:
        # Half the time of a match, and a request may have ten thousand offsets.
        if type(value) is OffsetValue and type(key) is OffsetKey:
            earlier = before.offsets.get(TopicPartition(key.topic, key.partition))
            if earlier is None or earlier.offset != value.offset or earlier.topic_id != value.topic_id:
                found.append(NotedPosition(key.topic, value.topic_id, key.partition, value.offset))
        elif type(value) is MemberValue and type(key) is MemberKey:
            found += _new_member_positions(before, key.member, value)
    return [position for position in found if position.offset]  # before 0 there is nothing


def _new_member_positions(before: Group, member_id: str, value: MemberValue) -> Iterator[NotedPosition]:
    member = before.members.get(member_id)
    earlier = {} if member is None else member.positions
    for topic, positions in value.positions.items():
        for partition, offset in positions.items():
            if earlier.get(TopicPartition(topic, partition)) != offset:
                yield NotedPosition(topic, value.topic_ids.get(topic, ""), partition, offset)


def make_durable(cluster: Cluster, positions: Iterable[NotedPosition]) -> None:
    """Make durable the records before `positions`, as far as there are any. Blocking. Raises
    StoreUnavailable.

    Positions in deleted topics are ignored: they go with their topic.
    """
    for position in positions:
        topic = cluster.cached_topic(position.topic)
        if topic is not None and topic.topic_id == position.topic_id:
            _make_durable(cluster, topic, position)


def _make_durable(cluster: Cluster, topic: Topic, position: NotedPosition) -> None:
    try:
        topic.partition(position.partition).table.make_durable_below(position.offset)
    except (Damaged, NotFound):  # it cannot be followed (any more): then all that anybody can see of it
        directory = partition_directory(topic.directory, position.partition)
        make_table_durable(cluster.store, directory)


_NEW = GroupValue(0)
"""The value of a group that has no record of its own yet."""


def group_record(group: Group) -> tuple[Key, Value | None]:
    """The record of the group as a whole."""
    return GroupKey(group.id), GroupValue(group.generation, group.idle_ms, group.principal)


def member_record(group: Group, member: Member) -> tuple[Key, Value | None]:
    """The record of `member`."""
    owned: dict[str, list[int]] = {}
    for topic, partition in sorted(member.owned):
        owned.setdefault(topic, []).append(partition)
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
    )
    return MemberKey(group.id, member.id), value


def _named(context: RequestContext | None) -> tuple[str, list[str], str]:
    if context is None:
        return "", [], ""
    return context.principal.name, [*context.principal.groups], context.host


def restore(records: Iterable[tuple[Key, Value | None]], now_ms: float) -> dict[str, Group]:
    """The groups of `records`, which are in order; every member is as if it were heard of now.

    They know only the topic ids that their members have noted: a TopicsChanged must be their first event.
    """
    generations: dict[str, GroupValue] = {}
    members: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    offsets: defaultdict[str, dict[TopicPartition, OffsetValue]] = defaultdict(dict)
    topics: defaultdict[str, dict[str, TopicState]] = defaultdict(dict)
    classic: dict[str, ClassicGroup] = {}
    counts: dict[str, TransactionsValue] = {}
    intents: defaultdict[str, dict[int, Intent]] = defaultdict(dict)
    retries: defaultdict[str, dict[str, Retry]] = defaultdict(dict)
    for key, value in dict(records).items():  # the newest of each key
        match key, value:
            case _, None:
                pass
            case GroupKey(group), GroupValue():
                generations[group] = value
            case MemberKey(group, member), MemberValue():
                members[group][member] = _remembered(member, value, now_ms)
                topics[group] |= {name: TopicState(topic_id, 0) for name, topic_id in value.topic_ids.items()}
            case ClassicKey(group), ClassicValue():
                classic[group] = remembered(value, now_ms)
            case OffsetKey(group, topic, partition), OffsetValue():
                offsets[group][TopicPartition(topic, partition)] = value
            case TransactionsKey(group), TransactionsValue():
                counts[group] = value
            case IntentKey(group, number), Intent():
                intents[group][number] = value
            case RetryKey(group, name), Retry():
                retries[group][name] = value
            case _:
                raise AssertionError(f"{key} has the value {value}")
    groups = generations.keys() | members.keys() | offsets.keys() | counts.keys() | classic.keys()
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
        frozenset(TopicPartition(topic, p) for topic, listed in value.owned.items() for p in listed),
        value.epoch,
        {
            TopicPartition(topic, p): offset
            for topic, places in value.positions.items()
            for p, offset in places.items()
        },
        starting=None if value.starting is None else frozenset(value.starting),
        context=_context(value),
    )


def _context(value: MemberValue) -> RequestContext | None:
    if not value.principal:
        return None
    return RequestContext(Principal(value.principal, tuple(value.principal_groups)), value.host)
