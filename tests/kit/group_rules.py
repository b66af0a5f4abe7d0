"""Rules of a good assignment, computed without the code under test."""

from collections.abc import Mapping

from coordinator.groups.state.assignment import Assignment, Subscriptions
from log_tables.topic_partition import TopicPartition


def spread(given: Assignment) -> list[int]:
    """How many partitions the members have, the fewest first."""
    return sorted(len(partitions) for partitions in given.values())


def moves(before: Assignment, after: Assignment) -> int:
    """How many partitions a member must give up to another one."""
    owner = {at: member for member in after for at in before.get(member, ())}
    return sum(owner.get(at, member) != member for member, got in after.items() for at in got)


def is_fair(given: Assignment, subscriptions: Subscriptions) -> bool:
    """Whether no member could take a partition from another that owns at least two more (KIP-54)."""
    return not any(
        len(held) - len(given[other]) >= 2
        for held in given.values()
        for at in held
        for other in subscriptions
        if at.topic in subscriptions[other]
    )


def fewest_moves(subscriptions: Subscriptions, counts: Mapping[str, int], owned: Assignment) -> int:
    """The fewest partitions that must move for equal subscriptions to be met evenly.

    Those with the most to keep have the larger shares; what is beyond a share moves.
    """
    chosen = next(iter(subscriptions.values()))
    wanted = {TopicPartition(t, p) for t in chosen if t in counts for p in range(counts[t])}
    kept = sorted((len(owned.get(member, frozenset()) & wanted) for member in subscriptions), reverse=True)
    share, larger = divmod(len(wanted), len(kept))
    return sum(max(0, has - share - (place < larger)) for place, has in enumerate(kept))
