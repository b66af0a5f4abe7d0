"""A check for `lakelog fsck`: do partitions and groups agree on the producers of groups' transactions?

The producer of a group is in every partition to which its transactions wrote. It is a kept one there, and its
epoch is at most that of the newest transaction that the group has committed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from log_tables.cluster.group_log import Intent, IntentKey, Key, TransactionsKey, TransactionsValue, Value
from log_tables.table.snapshot import Snapshot
from log_tables.table.txns import ProducerState

States = Mapping[int, ProducerState]
"""The producers of a partition, by id."""


@dataclass(slots=True)
class GroupProducers:
    """The producers of groups' transactions, as the groups name them."""

    counts: dict[str, TransactionsValue] = field(default_factory=dict)
    pending: dict[tuple[str, int], Intent] = field(default_factory=dict)

    def hear(self, key: Key, value: Value | None) -> None:
        """Read the next record of `__consumer_offsets`."""
        if isinstance(key, TransactionsKey):
            self.counts.pop(key.group, None)
            if isinstance(value, TransactionsValue):
                self.counts[key.group] = value
        elif isinstance(key, IntentKey):
            self.pending.pop((key.group, key.number), None)
            if isinstance(value, Intent):
                self.pending[key.group, key.number] = value

    def ids(self, group: str) -> set[int]:
        """The producers that the group uses, or has used for pending transactions."""
        old = {intent.producer_id for (of, _), intent in self.pending.items() if of == group}
        return {self.counts[group].producer_id, *old}


def producers(snapshot: Snapshot) -> States:
    """The producers of a partition."""
    states = ((producer_id, snapshot.producer(producer_id)) for producer_id in snapshot.producer_ids())
    return {producer_id: state for producer_id, state in states if state is not None}


def misused(groups: GroupProducers, states: States) -> Iterator[str]:
    """The problems of groups' producers in a partition that was read before the groups were."""
    for group, count in sorted(groups.counts.items()):
        for producer_id in sorted(groups.ids(group) & states.keys()):
            state, newest = states[producer_id], count.newest_epoch(producer_id)
            if not state.kept:
                yield (
                    f"producer {producer_id}, which applies the transactions of group {group!r}, was used by "
                    "a client; check which records of the group arrived since, and send the rest again"
                )
            elif state.epoch > newest:
                yield (
                    f"producer {producer_id} of group {group!r} is at epoch {state.epoch}, and the group has "
                    f"committed up to {newest}; restore both from the same time"
                )


def shared(groups: GroupProducers) -> Iterator[str]:
    """Producers that two groups share: each would take the other's transactions for its own."""
    owners: dict[int, str] = {}
    for group, count in sorted(groups.counts.items()):
        other = owners.setdefault(count.producer_id, group)
        if other != group:
            yield (
                f"groups {other!r} and {group!r} have the same producer {count.producer_id}; delete one of "
                "them"
            )
