"""The producers that lakelog keeps, as partitions and groups have them: do the two agree? For `lakelog fsck`.

A group's producer is in every partition that its transactions wrote to. There it is a kept one, and its epoch
is at most that of a number which the group has committed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from log_tables.cluster.group_log import Intent, IntentKey, Key, TransactionsKey, TransactionsValue, Value
from log_tables.layout import producer_of_txn
from log_tables.table.snapshot import ProducerState, Snapshot

States = Mapping[int, ProducerState]
"""What a partition knows of producers, by id."""


@dataclass(slots=True)
class GroupProducers:
    """What groups say of the producers that apply their transactions."""

    counts: dict[str, TransactionsValue] = field(default_factory=dict)
    pending: dict[tuple[str, int], Intent] = field(default_factory=dict)

    def hear(self, key: Key, value: Value | None) -> None:
        """Take note of a record of `__consumer_offsets`, in their order."""
        if isinstance(key, TransactionsKey):
            self.counts.pop(key.group, None)
            if isinstance(value, TransactionsValue):
                self.counts[key.group] = value
        elif isinstance(key, IntentKey):
            self.pending.pop((key.group, key.number), None)
            if isinstance(value, Intent):
                self.pending[key.group, key.number] = value

    def ids(self, group: str) -> set[int]:
        """The producers that the group goes by."""
        old = {intent.producer_id for (of, _), intent in self.pending.items() if of == group}
        return {self.counts[group].producer_id, *old}


def producers(snapshot: Snapshot) -> States:
    """Every producer that a partition knows."""
    named = {found[0] for app_id in snapshot.txns if (found := producer_of_txn(app_id)) is not None}
    states = ((producer_id, snapshot.producer(producer_id)) for producer_id in named)
    return {producer_id: state for producer_id, state in states if state is not None}


def misused(groups: GroupProducers, states: States) -> Iterator[str]:
    """What is wrong with groups' producers in a partition that was looked at before the groups were."""
    for group, count in sorted(groups.counts.items()):
        for producer_id in sorted(groups.ids(group) & states.keys()):
            state, newest = states[producer_id], count.newest_epoch(producer_id)
            if not state.kept:
                yield (
                    f"producer {producer_id}, which applies the transactions of group {group!r}, was used by "
                    "a client; look whether what the group sent since is there, and send the rest again"
                )
            elif state.epoch > newest:
                yield (
                    f"producer {producer_id} of group {group!r} is at epoch {state.epoch}, and the group has "
                    f"committed up to {newest}; restore the one or the other from a backup"
                )


def shared(groups: GroupProducers) -> Iterator[str]:
    """Producers that two groups have drawn: each would take the other's transactions for its own."""
    owners: dict[int, str] = {}
    for group, count in sorted(groups.counts.items()):
        other = owners.setdefault(count.producer_id, group)
        if other != group:
            yield (
                f"groups {other!r} and {group!r} have the same producer {count.producer_id}; delete one of "
                "them"
            )


def heard(records: Iterable[tuple[Key, Value | None]]) -> GroupProducers:
    """What `records` of `__consumer_offsets` say, in their order."""
    groups = GroupProducers()
    for key, value in records:
        groups.hear(key, value)
    return groups
