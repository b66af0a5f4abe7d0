"""The steps of a group that move offsets: commits, seeks, resets, transactions, and where `latest` begins.

`step` calls them. Each takes the group, in which the member of the event is already noted as alive, and
returns the next group and its records.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace

from coordinator.groups.events import Commit, OffsetAndMetadata, Reset, Seek, Start, Transact
from coordinator.groups.state import transaction_state
from coordinator.groups.state.acts import Done, with_act
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import member_record
from coordinator.groups.state.member import Member
from log_tables.cluster.group_log import OffsetKey, OffsetValue, Records, mirror_member
from log_tables.cluster.topic import check_writable
from log_tables.errors import (
    Conflict,
    GroupNotEmpty,
    InvalidConsumer,
    InvalidRecord,
    StaleGeneration,
    UnknownTopic,
)
from log_tables.segments.staging import StagedFile
from log_tables.topic_partition import TopicPartition


def commit(group: Group, event: Commit, _now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    if not event.checked:
        _check_committing(group, member, event.offsets)
    return with_offsets(group, [member], event.offsets, event.at_ms, member.id)


def finish(group: Group, event: Commit | Seek) -> tuple[Group, Records]:
    """Apply the rest of a request whose member has left meanwhile: only its commit counts."""
    if isinstance(event, Seek):
        return group, []
    return with_offsets(group, [], event.offsets, event.at_ms, event.member_id)


def _check_committing(group: Group, member: Member, offsets: Iterable[TopicPartition]) -> None:
    """Raise NotAssigned, GroupNotEmpty unless `member` may commit these."""
    group.check_owned(member, offsets)
    if member.assigned and not group.empty:
        raise GroupNotEmpty(
            f"members of the group {group.id!r} share its topics: a consumer instance with partitions of its "
            "own cannot commit there; use another group"
        )


def seek(group: Group, event: Seek, _now_ms: float) -> tuple[Group, Records]:
    member = group.members[event.member_id]
    if event.checked:
        event = replace(
            event, positions={at: each for at, each in event.positions.items() if at in member.owned}
        )
    group.check_owned(member, event.positions)
    changed = replace(member, positions={**member.positions, **event.positions})
    return group.with_member(changed), [member_record(group, changed)]


def reset(group: Group, event: Reset, _now_ms: float) -> tuple[Group, Records]:
    if not event.checked:
        _check_resetting(group, event)
    by = mirror_member(event.mirror) if event.mirror else ""
    noted = Records()
    if not event.checked:
        group, noted = with_act(group, Done.RESET, event.at_ms, event.context, event.every)
    group, records = with_offsets(group, group.members.values(), event.offsets, event.at_ms, by)
    return group, records + noted


def _check_resetting(group: Group, event: Reset) -> None:
    if group.has_kafka_clients:
        raise GroupNotEmpty(
            f"the group {group.id!r} has members that joined by Kafka's protocol, and would not hear of it; "
            "stop them first"
        )
    if not group.empty and not event.force:
        raise GroupNotEmpty(
            f"the group {group.id!r} has members, which own its offsets; stop them first, or force it"
        )
    if event.mirror:
        _check_mirroring(group, event)


def _check_mirroring(group: Group, event: Reset) -> None:
    """Raise Conflict where the group has offsets that are not the mirror's, or others than it has seen."""
    ours, unstable = mirror_member(event.mirror), group.unstable_partitions
    for at in _partitions(group, {at.topic for at in event.offsets}):
        known = group.offsets.get(at)
        if (known is not None and known.member != ours) or at in unstable:
            raise Conflict(
                f"the group {group.id!r} has committed an offset of {at} here, so the mirror {event.mirror} "
                "changes none of that topic; to have those of the source again, delete the group here"
            )
    for at in event.offsets:
        value, seen = group.offsets.get(at), event.before.get(at)
        now = None if value is None else value.offset
        if now != seen:
            raise Conflict(
                f"the offset of {at} of the group {group.id!r} is {now}, and not {seen}; read it again"
            )


def _partitions(group: Group, topics: Iterable[str]) -> Iterator[TopicPartition]:
    for name in topics:
        count = group.topics[name].partitions if name in group.topics else 0
        yield from (TopicPartition(name, number) for number in range(count))


def transact(group: Group, event: Transact, now_ms: float) -> tuple[Group, Records]:
    """Commit the offsets of a transaction, and begin it. A repeat changes nothing: `find_retry` answers it.

    Raises InvalidRecord, InvalidConsumer, StaleGeneration, NotAssigned, GroupNotEmpty, UnknownTopic.
    """
    if group.transactions.find_retry(event.key, event.digest) is not None:
        return group, []
    if not event.offsets and not event.staged:
        raise InvalidRecord("the transaction has neither records nor offsets; send some")
    _check_staged(group, event.staged)
    if event.member_id is None:
        if not group.empty:
            raise GroupNotEmpty(
                f"the group {group.id!r} has members, which own its offsets; stop them first, or send it as "
                "one of them"
            )
        movers: list[Member] = [*group.members.values()]
    else:
        member = replace(group.member(event.member_id), seen_ms=now_ms)
        _check_transacting(group, member, event)
        group, movers = group.with_member(member), [member]
    group, records = with_offsets(group, movers, event.offsets, event.at_ms, event.member_id or "")
    transactions, more = transaction_state.begin(group.transactions, group.id, event)
    return replace(group, transactions=transactions), records + more


def _check_transacting(group: Group, member: Member, event: Transact) -> None:
    if event.generation is not None and event.generation != member.epoch:
        raise StaleGeneration(
            f"the assignment of the consumer instance {member.id!r} has changed since generation "
            f"{event.generation}: it is {member.epoch}; poll, go by the assignment, and do the work again",
            current=member.epoch,
        )
    _check_committing(group, member, event.offsets)
    if event.offsets and member.config.auto_commit:
        raise InvalidConsumer(
            f"the consumer instance {member.id!r} commits by itself what it was given, whatever becomes of "
            "its transactions; create it with auto.commit.enable=false"
        )


def _check_staged(group: Group, staged: Iterable[StagedFile]) -> None:
    # A transaction of small requests has tens of thousands of runs, for some partitions.
    runs = ((run.topic, run.topic_id, run.partition) for file in staged for run in file.runs)
    for topic, topic_id, partition in dict.fromkeys(runs):
        check_writable(topic)
        if group.check(TopicPartition(topic, partition)).topic_id != topic_id:
            raise UnknownTopic(
                f"topic {topic!r} is not the one that records were staged for: it was re-created; stage "
                "them again"
            )


def start(group: Group, event: Start, _now_ms: float) -> tuple[Group, Records]:
    """Note where a member at `latest` begins: at the log ends of the event.

    It begins at 0 where the end is not known: the partition is damaged, or came after the topic was looked
    at. It also begins at 0 where a member at `earliest` has the topic, because that member may have received
    records without a commit.

    The member may have subscribed again after the ends were read: then the ends of other topics still follow.
    """
    member = group.members[event.member_id]
    others = [] if member.assigned else [m for m in group.members.values() if m.id != member.id]
    taken, starting, places = group.started(others), group.starting(member), dict[TopicPartition, int]()
    for at, end in event.ends.items():
        if at.topic in starting and group.is_unplaced(member, at):
            known = end is not None and end.topic_id == group.topics[at.topic].topic_id
            places[at] = end.offset if end and known and at.topic not in taken else 0
    left = set()
    for at in group.unplaced(member, starting & event.topics.keys()):
        if at not in places and group.topics[at.topic].had(at.partition, event.topics[at.topic]):
            left.add(at.topic)
        else:
            places.setdefault(at, 0)
    group, records = _placed(group, member, places, event.at_ms)
    done = starting & event.topics.keys() - left
    if not done:
        return group, records
    started = replace(group.members[member.id], starting=starting - done)
    return group.with_member(started), [*records, member_record(group, started)]


def place_in_new(group: Group, before: Group, others: Set[str], at_ms: int) -> tuple[Group, Records]:
    """`group` at the beginning of the partitions that came to its members at `latest` after `before`, when
    the topics `others` were others.
    """
    records: Records = []
    latest = [member for member in group.members.values() if member.latest]
    for member in sorted(latest, key=lambda member: member.id):
        chosen, earlier = group.chosen(member), before.chosen(member)
        new = chosen & others if chosen is earlier else (chosen - earlier) | (chosen & others)
        if not new:
            continue
        places = dict.fromkeys(group.unplaced(member, new - group.starting(member)), 0)
        group, more = _placed(group, member, places, at_ms)
        records += more
    return group, records


def _placed(
    group: Group, member: Member, places: Mapping[TopicPartition, int], at_ms: int
) -> tuple[Group, Records]:
    """`group` with the offsets at which `member` begins; whoever has sought a position there keeps it."""
    if not places:
        return group, []
    if member.assigned:
        noted = replace(member, positions={**member.positions, **places})
        return group.with_member(noted), [member_record(group, noted)]
    offsets = {at: OffsetAndMetadata(offset) for at, offset in places.items()}
    return with_offsets(group, [], offsets, at_ms, member.id)


def with_offsets(
    group: Group,
    movers: Iterable[Member],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    at_ms: int,
    by: str,
) -> tuple[Group, Records]:
    """`group` with these offsets committed; `movers` go on from there, whatever positions they had.

    Raises UnknownTopic, UnknownPartition, InvalidTopicName.
    """
    made, records, waiting = dict[TopicPartition, OffsetValue](), Records(), group.pending_orders()
    for at, place in offsets.items():
        topic_id = group.check(at).topic_id
        order = waiting[at] + 1 if at in waiting else 0
        value = OffsetValue(
            place.offset, topic_id, place.metadata, at_ms, by, place.leader_epoch, order=order
        )
        made[at] = value
        records.append((OffsetKey(group.id, at.topic, at.partition), made[at]))
    for member in movers:
        if not offsets.keys().isdisjoint(member.positions):
            kept = {at: offset for at, offset in member.positions.items() if at not in offsets}
            moved = replace(member, positions=kept)
            group = group.with_member(moved)
            records.append(member_record(group, moved))
    newest = max(at_ms, group.committed_ms) if made else group.committed_ms
    return replace(group, offsets={**group.offsets, **made}, committed_ms=newest), records
