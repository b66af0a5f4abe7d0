"""The assignment strategies of a group: pure functions with Kafka's names.

Each takes the subscriptions of the members, the partitions of each topic, and the owned partitions. It gives
every partition of a subscribed topic to exactly one of its subscribers.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain

from log_tables.topic_partition import TopicPartition

Assignment = dict[str, frozenset[TopicPartition]]
Subscriptions = Mapping[str, Collection[str]]
"""The topics that each member subscribes to."""
Held = dict[str, list[TopicPartition]]
"""The partitions given to each subscriber, of topics with the same subscribers; last those it does not own.
"""
Share = tuple[Held, list[TopicPartition]]
"""The partitions of such topics that are given, and those that are still free."""
Kind = tuple[list[str], list[str]]
"""Members, and topics that just these subscribe to, in order."""


def sticky(subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment) -> Assignment:
    """Owners keep theirs, free partitions go to the members with least, then single ones move (KIP-54).

    They move until no member could take over one from another that has at least two more. Among members with
    the same subscription, that is as even as can be, with the fewest moves. Where subscriptions differ, it is
    as even as single moves make it, and there may be more moves than needed: a chain of moves of which none
    helps alone is not searched for.
    """
    sizes = dict.fromkeys(sorted(subscriptions), 0)
    kinds = _kept(_alike(subscriptions, counts), counts, owned)
    for held, _ in kinds:
        for member in held:
            sizes[member] += len(held[member])
    for held, free in kinds:
        _deal(held, free, sizes)
    # Wide gaps first: a move between near members might be undone by one to a member that has far fewer.
    gap = max(sizes.values(), default=0) + 1 if len(kinds) > 1 else 3
    while gap > 2:
        gap = max(2, gap * 3 // 4)
        while sum(_move(held, sizes, owned, gap) for held, _ in kinds):
            pass
    given: dict[str, set[TopicPartition]] = {member: set() for member in sizes}
    for held, _ in kinds:
        for member in held:
            given[member].update(held[member])
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _alike(subscriptions: Subscriptions, counts: Mapping[str, int]) -> list[Kind]:
    """The topics that exist by their subscribers, both in order; those with few subscribers first, so that
    the others can even it out.
    """
    # Most members of a group subscribe to the same: what is looked up for all of them is looked up once.
    alike: dict[frozenset[str], list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        alike[frozenset(subscriptions[member])].append(member)
    known = [*alike.values()]
    subscribers: dict[str, list[int]] = defaultdict(list)
    for number, topics in enumerate(alike):
        for topic in topics & counts.keys():
            subscribers[topic].append(number)
    found: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for topic in sorted(subscribers):
        found[tuple(subscribers[topic])].append(topic)
    kinds = [(sorted(chain(*(known[n] for n in numbers))), topics) for numbers, topics in found.items()]
    return sorted(kinds, key=lambda kind: (len(kind[0]), kind[0]))


def _kept(kinds: Sequence[Kind], counts: Mapping[str, int], owned: Assignment) -> list[Share]:
    """The partitions of each kind of topics that its subscribers own, and those that none of them does."""
    found: list[Share] = [({member: [] for member in members}, []) for members, _ in kinds]
    held_of = {topic: held for (held, _), (_, topics) in zip(found, kinds, strict=True) for topic in topics}
    taken: dict[str, set[int]] = {topic: set() for topic in held_of}
    for member in sorted(owned):
        for at in sorted(owned[member]):
            topic, partition = at
            held = held_of.get(topic, {})
            if member in held and partition < counts[topic] and partition not in taken[topic]:
                taken[topic].add(partition)
                held[member].append(at)
    for (_, free), (_, topics) in zip(found, kinds, strict=True):
        for topic in topics:
            if len(taken[topic]) < counts[topic]:
                left = (partition for partition in range(counts[topic]) if partition not in taken[topic])
                free += [TopicPartition(topic, partition) for partition in left]
    return found


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
    for members, topics in _alike(subscriptions, counts):
        for topic in topics:
            share, rest = divmod(counts[topic], len(members))
            begin = 0
            for index, member in enumerate(members if share else members[:rest]):
                end = begin + share + (index < rest)
                given[member].update(TopicPartition(topic, partition) for partition in range(begin, end))
                begin = end
    return {member: frozenset(partitions) for member, partitions in given.items()}


def round_robin(subscriptions: Subscriptions, counts: Mapping[str, int], _owned: Assignment) -> Assignment:
    """All partitions in order, dealt out to the members in turn; members without the topic are skipped."""
    given: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    members, turn = sorted(subscriptions), 0
    for topic in sorted(topic for _, topics in _alike(subscriptions, counts) for topic in topics):
        for partition in range(counts[topic]):
            while topic not in subscriptions[members[turn]]:
                turn = (turn + 1) % len(members)
            given[members[turn]].add(TopicPartition(topic, partition))
            turn = (turn + 1) % len(members)
    return {member: frozenset(partitions) for member, partitions in given.items()}


STRATEGIES: Mapping[str, Callable[[Subscriptions, Mapping[str, int], Assignment], Assignment]] = {
    "sticky": sticky,
    "range": range_,
    "roundrobin": round_robin,
}
