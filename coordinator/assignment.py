"""Which member of a group gets which partitions: the strategies, pure functions with Kafka's names.

Each takes what the members subscribe to, the partitions that there are, and what everybody owns now, and
gives every partition of a subscribed topic to exactly one of its subscribers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Assignment = dict[str, frozenset[TopicPartition]]
Subscriptions = Mapping[str, Collection[str]]
"""The topics that each member subscribes to."""


def sticky(subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment) -> Assignment:
    """As even as the subscriptions allow, and of all such assignments one that moves the fewest (KIP-54)."""
    eligible = _eligible(subscriptions, counts)
    given: dict[str, set[TopicPartition]] = {member: set() for member in sorted(subscriptions)}
    free: list[TopicPartition] = []
    owner = {at: member for member in sorted(owned) for at in owned[member]}
    # First those that few can take, so that the others can make good for it.
    for topic in sorted(eligible, key=lambda topic: (len(eligible[topic]), topic)):
        for partition in range(counts[topic]):
            at = TopicPartition(topic, partition)
            member = owner.get(at)
            if member in eligible[topic]:
                given[member].add(at)
            else:
                free.append(at)
    for at in free:
        given[min(eligible[at.topic], key=lambda member: len(given[member]))].add(at)
    while _moved(given, eligible, owned):
        pass
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _moved(
    given: dict[str, set[TopicPartition]], eligible: Mapping[str, list[str]], owned: Assignment
) -> bool:
    """Move one partition to a member that has at least two fewer; False when there is none to move."""
    for member in sorted(given, key=lambda member: -len(given[member])):
        held = given[member]
        topics = {at.topic for at in held}
        taker = min(
            (other for topic in topics for other in eligible[topic]),
            key=lambda other: (len(given[other]), other),
            default=member,
        )
        if len(held) - len(given[taker]) < 2:
            continue
        mine = owned.get(member, frozenset())
        # One that the member does not own yet moves for nothing.
        moving = max((at for at in held if taker in eligible[at.topic]), key=lambda at: (at not in mine, at))
        held.remove(moving)
        given[taker].add(moving)
        return True
    return False


def range_(subscriptions: Subscriptions, counts: Mapping[str, int], _owned: Assignment) -> Assignment:
    """Of each topic a run of neighbouring partitions for each subscriber, in the order of their names."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    for topic, members in _eligible(subscriptions, counts).items():
        share, rest = divmod(counts[topic], len(members))
        begin = 0
        for index, member in enumerate(members):
            end = begin + share + (index < rest)
            given[member].update(TopicPartition(topic, partition) for partition in range(begin, end))
            begin = end
    return {member: frozenset(partitions) for member, partitions in given.items()}


def round_robin(subscriptions: Subscriptions, counts: Mapping[str, int], _owned: Assignment) -> Assignment:
    """All partitions in order, dealt out to the members in turn; who does not subscribe is passed over."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    members, turn = sorted(subscriptions), 0
    for topic in sorted(_eligible(subscriptions, counts)):
        for partition in range(counts[topic]):
            while topic not in subscriptions[members[turn]]:
                turn = (turn + 1) % len(members)
            given[members[turn]].add(TopicPartition(topic, partition))
            turn = (turn + 1) % len(members)
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _eligible(subscriptions: Subscriptions, counts: Mapping[str, int]) -> dict[str, list[str]]:
    """The subscribers of each topic that there is, ordered."""
    found: dict[str, list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            if topic in counts:
                found[topic].append(member)
    return dict(found)


STRATEGIES: Mapping[str, Callable[[Subscriptions, Mapping[str, int], Assignment], Assignment]] = {
    "sticky": sticky,
    "range": range_,
    "roundrobin": round_robin,
}
