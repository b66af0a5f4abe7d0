"""The acts of operators on a group's offsets undone: the plan, which a dry run shows, and the step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.groups.events import OffsetAndMetadata, Undo
from coordinator.groups.state.acts import Done, known_acts, with_act
from coordinator.groups.state.group import Group, newest_commit_ms
from coordinator.groups.state.offset_step import with_offsets
from log_tables.cluster.group_log import Act, OffsetKey, OffsetValue, Records, is_hidden
from log_tables.counts import counted
from log_tables.errors import Conflict, GroupNotEmpty, InvalidArgument, NotFound
from log_tables.limits import UNDO_OFFSETS_MAX
from log_tables.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The changes by an undo of `acts`, the newest first: offsets that are set, and those that are deleted as
    there were none. `left` are the partitions that stay as they are, and why.
    """

    acts: tuple[Act, ...]
    set: Mapping[TopicPartition, OffsetValue] = field(default_factory=dict)
    deleted: frozenset[TopicPartition] = frozenset()
    left: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def changed(self) -> list[TopicPartition]:
        """The partitions whose offsets change."""
        return sorted({*self.set, *self.deleted})


def undo_plan(group: Group, acts: int, since_ms: int, newest_ms: int = 0) -> UndoPlan:
    """The changes by which the group has the offsets from before its newest `acts` acts since `since_ms`, of
    which the newest is that of `newest_ms`; 0: any.

    A partition that none of them has touched stays as it is. Raises NotFound where there are fewer,
    Conflict where another act came since, InvalidArgument for less than one.
    """
    known = known_acts(group, since_ms)
    if acts < 1:
        raise InvalidArgument(f"{acts} acts cannot be undone; name 1 for the newest, or more")
    if acts > len(known):
        kept = f"only {counted(len(known), 'act')}" if known else "nothing"
        raise NotFound(
            f"the group {group.id[:100]!r} has {kept} to undo: deletions and resets of its offsets count, "
            f"as long as group_undo_ms keeps them, and of at most {UNDO_OFFSETS_MAX} offsets together"
        )
    if newest_ms and known[0].at_ms != newest_ms:
        raise Conflict(
            f"the newest act on the offsets of the group {group.id[:100]!r} is another one by now: "
            f"{known[0].done}; look at the dry run, and repeat it"
        )
    before: dict[TopicPartition, OffsetValue | None] = {}
    for act in known[:acts]:
        before |= {TopicPartition(topic, number): value for topic, number, value in act.offsets}
    found, deleted, left = (
        dict[TopicPartition, OffsetValue](),
        set[TopicPartition](),
        dict[TopicPartition, str](),
    )
    for at, value in sorted(before.items(), key=lambda each: each[0]):
        now = group.committed(at)
        if value is None:
            if now is not None:
                deleted.add(at)
            continue
        reason = _gone(group, at, value)
        if reason:
            left[at] = reason
        elif now is None or (now.offset, now.metadata) != (value.offset, value.metadata):
            found[at] = value
    return UndoPlan(known[:acts], found, frozenset(deleted), left)


def _gone(group: Group, at: TopicPartition, value: OffsetValue) -> str:
    topic = group.topics.get(at.topic)
    if topic is None:
        return "the topic is deleted"
    if topic.topic_id != value.topic_id:
        return "the topic was re-created"
    return "" if at.partition < topic.partitions else "there is no such partition"


def undo(group: Group, event: Undo, _now_ms: float) -> tuple[Group, Records]:
    """All of it is one append, and an act of its own. Raises GroupNotEmpty, Conflict, NotFound,
    InvalidArgument.
    """
    if group.has_kafka_clients or not group.empty:
        raise GroupNotEmpty(
            f"the group {group.id!r} has members, which own its offsets; stop them first, and undo then"
        )
    plan = undo_plan(group, event.acts, event.since_ms, event.newest_ms)
    if not plan.changed:
        return group, []
    after, noted = with_act(group, Done.UNDO, event.at_ms, event.context, plan.changed)
    records = [*noted]
    for by, places in _by_member(plan.set).items():
        after, more = with_offsets(after, after.members.values(), places, event.at_ms, by)
        records += more
    left = {at: value for at, value in after.offsets.items() if at not in plan.deleted}
    after = replace(after, offsets=left, committed_ms=newest_commit_ms(left))
    return after, [*records, *((OffsetKey(group.id, *at), None) for at in sorted(plan.deleted))]


def _by_member(
    found: Mapping[TopicPartition, OffsetValue],
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """The offsets to set, by who is to have set them: a mirror goes on with those that it had set."""
    places: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for at, value in found.items():
        by = value.member if is_hidden(value.member) else ""
        place = OffsetAndMetadata(value.offset, value.metadata, value.leader_epoch)
        places.setdefault(by, {})[at] = place
    return places
