"""A check of what a reader finds of the transactions of Kafka's clients, whatever has happened to them."""

from collections.abc import Sequence

from tests.kit.producers_clients import Transaction
from tests.kit.producers_world import PARTITIONS, World


def check_outcomes(world: World, transactions: Sequence[Transaction]) -> None:
    """Assert that each transaction is whole or not there, as its client was told; and so is its offset."""
    written = [world.written(partition) for partition in range(PARTITIONS)]
    offsets: dict[str, set[int | None]] = {}
    for transaction in transactions:
        found = _found(transaction, written)
        if found is None:
            found = transaction.committed
        if transaction.offset is not None and found is not False:
            known = offsets.setdefault(transaction.owner, {None})
            if found:
                known.clear()
            known.add(transaction.offset)
    committed = world.offsets()
    for name, allowed in offsets.items():
        assert committed.get(f"group-{name}") in allowed, (name, committed, allowed)


def _found(transaction: Transaction, written: Sequence[Sequence[bytes]]) -> bool | None:
    """Whether it was committed, by its records; None if it has none."""
    outcomes = set()
    for partition, values in transaction.written.items():
        there = [value for value in written[partition] if value in values]
        assert there in ([], values), f"{transaction} has {there} in {partition}"
        if there:
            first = written[partition].index(values[0])
            assert written[partition][first : first + len(values)] == values
        outcomes.add(bool(there))
    assert len(outcomes) < 2, f"a half of {transaction} is committed"
    if not outcomes:
        return None
    found = outcomes.pop()
    if transaction.committed is not None:
        assert found == transaction.committed, f"{transaction}: {found}"
    assert not found or transaction.asked, f"nobody has committed {transaction}"
    return found
