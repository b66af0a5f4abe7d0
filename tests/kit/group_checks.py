"""Invariants of a group that hold after every step."""

from collections.abc import Mapping
from dataclasses import replace

from coordinator.groups.events import Aimed, Assign, Delete, Event, Poll, Tick, TopicsChanged, Unsubscribe
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.member import Member
from log_tables.cluster.group_log import Records
from log_tables.topic_partition import TopicPartition
from tests.kit.group_rules import fewest_moves, is_fair, moves

GROUP = "g"


def is_forgotten(before: Group, event: Event) -> bool:
    """Whether `event` ends the group, because it has had neither members nor commits for long enough."""
    if not isinstance(event, Tick) or not before.idle_ms or before.members or before.transactions.number:
        return False
    last = [before.idle_ms, *(committed.committed_ms for committed in before.offsets.values())]
    return max(last) < event.forget_before_ms


def check_owners(group: Group) -> None:
    """Each partition has at most one owner among those that share."""
    shared = [at for member in group.members.values() if member.subscribed for at in member.owned]
    assert len(shared) == len({*shared})
    for member in group.members.values():
        assert member.positions.keys() <= member.owned
        assert member.epoch <= group.generation
        assert not (member.dormant and member.subscribed and member.owned)
    assert not (group.members and group.idle_ms)


def check_restored(group: Group, records: Records, now_ms: float) -> None:
    """The records give the same group again, but for times and what it knows of topics."""
    restored = restore(records, now_ms).get(GROUP, Group(GROUP))
    assert restored.generation == group.generation
    assert restored.offsets == group.offsets
    assert restored.committed_ms == group.committed_ms
    assert restored.idle_ms == group.idle_ms
    assert restored.transactions == group.transactions
    assert restored.acts == group.acts
    assert {name: _lasting(m) for name, m in restored.members.items()} == {
        name: _lasting(m) for name, m in group.members.items()
    }


def _lasting(member: Member) -> Member:
    return replace(member, seen_ms=0, polled_ms=0, dormant=False)


def check_step(before: Group, event: Event, after: Group) -> None:
    """Nobody is given or loses anything but by the rules."""
    if is_forgotten(before, event):
        assert not after.exists
    elif not isinstance(event, Delete):
        assert after.generation >= before.generation
    for name in after.members.keys() & before.members.keys():
        _check_member(before, event, after, name)
    if after.target is not before.target and after.due_ms is None and not isinstance(event, Aimed):
        check_target(after)
    _check_narrow(after)


def _check_member(before: Group, event: Event, after: Group, name: str) -> None:
    was, now = before.members[name], after.members[name]
    own = getattr(event, "member_id", None) == name
    gained, lost = now.owned - was.owned, was.owned - now.owned
    if gained:
        assert own
        assert isinstance(event, Poll | Assign)
    if gained and now.subscribed:
        others = [m for m in before.members.values() if m.subscribed and m.id != name]
        assert not any(gained & other.owned for other in others), "somebody still owned it"
    if (gained and now.subscribed) or (lost and was.subscribed):
        assert after.generation > before.generation
        assert now.epoch == after.generation, "it is told"
    by_topics = isinstance(event, TopicsChanged) and not any(_stays(at, before, event) for at in lost)
    by_silence = isinstance(event, Tick) and now.dormant
    if lost and own and isinstance(event, Poll):
        assert event.generation is None or event.generation >= was.epoch, "it could not know"
        assert lost <= before.to_revoke(was), "it was to keep it"
    elif lost:
        by_itself = own and isinstance(event, Unsubscribe | Assign)
        assert by_itself or by_topics or by_silence
    if now.epoch != was.epoch and not own:
        assert lost or after.to_revoke(now) or before.to_revoke(was) or by_silence, "it was told of nothing"


def _check_narrow(group: Group) -> None:
    """Assert that nobody is to own what there is not, or what it does not ask for."""
    members = {member.id: member for member in sharing(group)}
    assert group.target.keys() == members.keys() or group.aimed_ms < 0
    for name, share in group.target.items():
        named = group.subscription(members[name])
        assert all(at.topic in named and at.partition < group.topics[at.topic].partitions for at in share)


def _stays(at: TopicPartition, before: Group, event: TopicsChanged) -> bool:
    was, now = before.topics.get(at.topic), event.topics.get(at.topic)
    same = now is not None and (was is None or was.topic_id == now.topic_id)
    return same and now is not None and at.partition < now.partitions


def sharing(group: Group) -> list[Member]:
    return [m for m in group.members.values() if m.subscribed and not m.dormant]


def check_target(group: Group, of: Group | None = None) -> None:
    """Assert that the target gives out every partition, evenly, and with as few moves as possible from what
    members owned in `of`, the group that it was computed of: the same one if that is None.
    """
    members = sharing(group)
    subscriptions = {m.id: group.subscription(m) for m in members}
    counts: Mapping[str, int] = {name: topic.partitions for name, topic in group.topics.items()}
    wanted = {topic for chosen in subscriptions.values() for topic in chosen} & counts.keys()
    given = sorted(at for member in members for at in group.target[member.id])
    assert given == sorted(TopicPartition(topic, p) for topic in wanted for p in range(counts[topic]))
    for member in members:
        assert {at.topic for at in group.target[member.id]} <= subscriptions[member.id]
    if group.strategy == "sticky" and members:
        target = {m.id: group.target[m.id] for m in members}
        owned = {m.id: (of or group).members[m.id].owned for m in members}
        assert is_fair(target, subscriptions)
        if len({*subscriptions.values()}) == 1:
            # What it owns of what is wanted no more goes to nobody.
            assert moves(owned, target) == fewest_moves(subscriptions, counts, owned)


def check_shared(group: Group) -> None:
    """Assert that every partition of the members' subscriptions has an owner."""
    wanted = {topic for member in sharing(group) for topic in group.subscription(member)}
    owned = {at for member in sharing(group) for at in member.owned}
    assert owned == {
        TopicPartition(name, p)
        for name in wanted & group.topics.keys()
        for p in range(group.topics[name].partitions)
    }
