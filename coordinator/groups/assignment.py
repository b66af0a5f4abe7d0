"""Which member of a group gets which partitions: the strategies, pure functions with Kafka's names.

Each takes what the members subscribe to, the partitions that there are, and what everybody owns now, and
gives every partition of a subscribed topic to exactly one of its subscribers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heapreplace

from log_tables.topic_partition import TopicPartition

Assignment = dict[str, frozenset[TopicPartition]]
Subscriptions = Mapping[str, Collection[str]]
"""The topics that each member subscribes to."""
Held = dict[str, list[TopicPartition]]
"""What each subscriber is given of topics that have the same subscribers; last what it does not own yet."""


def sticky(subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment) -> Assignment:
    """Owners keep what they have, what is free goes to who has least, then single partitions move (KIP-54).

    They move until nobody could take over one from somebody who has at least two more. Among members that
    subscribe to the same, that is as even as can be, with the fewest moves. Where subscriptions differ, it is
    as even as single moves make it, not always with the fewest: a chain of moves, of which none helps alone,
    is not looked for.
    """
    owner = {at: member for member in sorted(owned) for at in owned[member]}
    sizes = dict.fromkeys(sorted(subscriptions), 0)
    kinds: list[tuple[Held, list[TopicPartition]]] = []
    for members, topics in _alike(_eligible(subscriptions, counts)):
        held: Held = {member: [] for member in members}
        free: list[TopicPartition] = []
        for topic in topics:
            for at in (TopicPartition(topic, partition) for partition in range(counts[topic])):
                held.get(owner.get(at, ""), free).append(at)
        for member in held:
            sizes[member] += len(held[member])
        kinds.append((held, free))
    for held, free in kinds:
        _deal(held, free, sizes)
    # Wide gaps first: a move between two that are near might be undone by one to somebody who has far less.
    gap = max(sizes.values(), default=0) + 1
    while gap > 2:
        gap = max(2, gap * 3 // 4)
        while sum(_move(held, sizes, owned, gap) for held, _ in kinds):
            pass
    given: dict[str, set[TopicPartition]] = {member: set() for member in sizes}
    for held, _ in kinds:
        for member in held:
            given[member].update(held[member])
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _alike(eligible: Mapping[str, list[str]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Topics by their subscribers; first what few can take, so that the others can make good for it."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for topic in sorted(eligible):
        found[tuple(eligible[topic])].append(topic)
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))


def _deal(held: Held, free: list[TopicPartition], sizes: dict[str, int]) -> None:
    """Give each free partition to who has least."""
    takers = [(sizes[member], member) for member in held]
    heapify(takers)
    for at in free:
        size, taker = takers[0]
        heapreplace(takers, (size + 1, taker))
        held[taker].append(at)
        sizes[taker] += 1


def _move(held: Held, sizes: dict[str, int], owned: Assignment, gap: int) -> int:
    """Move one by one from who has most to who has least, as long as that is `gap` fewer; how many moved."""
    takers = [(sizes[member], member) for member in held]
    givers = [(-sizes[member], member) for member in held if held[member]]
    heapify(takers)
    heapify(givers)
    moved = 0
    # Nobody both gives and takes: until the end, who gave has more than the least, and who took less than the
    # most. So each heap is right where it is looked at, though it does not hear of the other.
    while givers and -givers[0][0] - takers[0][0] >= gap:
        (fewer, giver), (size, taker) = givers[0], takers[0]
        # Last are those that the giver does not own yet: they move for nothing.
        at = held[giver].pop()
        held[taker].insert(0 if at in owned.get(taker, ()) else len(held[taker]), at)
        sizes[giver] -= 1
        sizes[taker] += 1
        heapreplace(takers, (size + 1, taker))
        if held[giver]:
            heapreplace(givers, (fewer + 1, giver))
        else:
            heappop(givers)
        moved += 1
    return moved


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
