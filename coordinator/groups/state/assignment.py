"""The assignment strategies of a group: pure functions with Kafka's names.

Each takes the subscriptions of the members, the partitions of each topic, and the owned partitions. It gives
every partition of a subscribed topic to exactly one of its subscribers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heapreplace

from log_tables.topic_partition import TopicPartition

Assignment = dict[str, frozenset[TopicPartition]]
Subscriptions = Mapping[str, Collection[str]]
"""The topics that each member subscribes to."""
Held = dict[str, list[TopicPartition]]
"""The partitions given to each subscriber, of topics with the same subscribers; last those it does not own.
"""


def sticky(subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment) -> Assignment:
    """Owners keep theirs, free partitions go to the members with least, then single ones move (KIP-54).

    They move until no member could take over one from another that has at least two more. Among members with
    the same subscription, that is as even as can be, with the fewest moves. Where subscriptions differ, it is
    as even as single moves make it, and there may be more moves than needed: a chain of moves of which none
    helps alone is not searched for.
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
    # Wide gaps first: a move between near members might be undone by one to a member that has far fewer.
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
    """Topics by their subscribers; those with few subscribers first, so that the others can even it out."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for topic in sorted(eligible):
        found[tuple(eligible[topic])].append(topic)
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))


def _deal(held: Held, free: list[TopicPartition], sizes: dict[str, int]) -> None:
    """Give each free partition to the member with the fewest."""
    takers = [(sizes[member], member) for member in held]
    heapify(takers)
    for at in free:
        size, taker = takers[0]
        heapreplace(takers, (size + 1, taker))
        held[taker].append(at)
        sizes[taker] += 1


def _move(held: Held, sizes: dict[str, int], owned: Assignment, gap: int) -> int:
    """Move single partitions from the member with most to that with least while `gap` apart."""
    takers = [(sizes[member], member) for member in held]
    givers = [(-sizes[member], member) for member in held if held[member]]
    heapify(takers)
    heapify(givers)
    moved = 0
    # No member both gives and takes: until the end, a giver has more than the least, and a taker less than
    # the most. So the top of each heap is right, although neither heap hears of the other's changes.
    while givers and -givers[0][0] - takers[0][0] >= gap:
        (fewer, giver), (size, taker) = givers[0], takers[0]
        # The last ones are those that the giver does not own yet: they move at no cost.
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
    """Each subscriber gets a range of neighbouring partitions of each topic, in the order of member ids."""
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
    """All partitions in order, dealt out to the members in turn; members without the topic are skipped."""
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
    """The subscribers of each topic that exists, in order."""
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
