"""A group's transactions, as pure state: those committed and not applied yet, and the retry keys.

A transaction is committed by one append: its offsets, its intent, its retry key. From then on it is only a
matter of time until its records are where they belong; `Applied` says that they are. Intents are numbered,
and applied in that order. Each function returns the next state and the records that say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator.groups.events import Applied, Transact
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    Records,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.errors import Conflict, RetryKeyReused, TransactionLost
from log_tables.limits import (
    KEPT_PRODUCER_ID_MIN,
    PRODUCER_EPOCH_MAX,
    RETRY_KEYS_MAX,
    RETRY_RETENTION_MS,
)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """`number` is that of the newest; `pending` and `retries` are in order of their numbers."""

    producer_id: int = 0
    number: int = 0
    pending: Mapping[int, Intent] = field(default_factory=dict)
    retries: Mapping[str, Retry] = field(default_factory=dict)

    @property
    def expiry_ms(self) -> int | None:
        """When, in milliseconds since 1970, the oldest retry key may be forgotten; the newest never is."""
        if len(self.retries) < 2:
            return None
        return next(iter(self.retries.values())).committed_ms + RETRY_RETENTION_MS

    def newest_epoch(self, producer_id: int) -> int:
        """The newest epoch with which the group can have used this producer: that of a committed number."""
        return TransactionsValue(self.producer_id, self.number).newest_epoch(producer_id)

    def find_retry(self, key: str, digest: str | None) -> Retry | None:
        """The transaction with this retry key, if it is remembered.

        Raises RetryKeyReused when its content was another, unless `digest` is None; TransactionLost when some
        of its records were given up.
        """
        found = self.retries.get(key)
        if found is not None and digest not in (None, found.digest):
            raise RetryKeyReused(
                f"the retry key {key!r} belongs to transaction {found.number}, which has another content; "
                "use a new key for a new transaction",
                transaction=found.number,
            )
        if found is not None and found.lost:
            raise TransactionLost(
                f"transaction {found.number}, of the retry key {key!r}, is committed, and some of its "
                "records were lost and given up; read what is there, and send the rest with a new key"
            )
        return found


def begin(
    before: TransactionState, group_id: str, event: Transact, retry_keys_max: int = RETRY_KEYS_MAX
) -> tuple[TransactionState, Records]:
    """Commit the transaction of `event`. Raises Conflict when it would be the key after `retry_keys_max`."""
    number = before.number + 1
    epoch = number % (PRODUCER_EPOCH_MAX + 1)
    # A producer's epochs only grow: when they are used up, another producer goes on. So it does in a group of
    # an older root, whose producer id a client could name.
    goes_on = before.number and epoch and before.producer_id >= KEPT_PRODUCER_ID_MIN
    producer_id = before.producer_id if goes_on else event.producer_id
    records: Records = [(TransactionsKey(group_id), TransactionsValue(producer_id, number))]
    retries, pending = dict(before.retries), before.pending
    for key in event.forget:
        if retries.pop(key, None) is not None:
            records.append((RetryKey(group_id, key), None))
    if event.staged:
        intent = Intent(producer_id, epoch, event.staged, event.key, event.author)
        pending = {**pending, number: intent}
        records.append((IntentKey(group_id, number), intent))
    if event.key:
        if len(retries) >= retry_keys_max:
            raise Conflict(
                f"the group {group_id!r} remembers {len(retries)} retry keys of the last day; name in "
                "'forget' those whose answer has come"
            )
        retries[event.key] = Retry(number, event.digest, event.at_ms, None if event.staged else ())
        records.append((RetryKey(group_id, event.key), retries[event.key]))
    return TransactionState(producer_id, number, pending, retries), records


def apply(before: TransactionState, group_id: str, event: Applied) -> tuple[TransactionState, Records]:
    """Note that a transaction's records are appended, or dropped if their topics are deleted."""
    intent = before.pending.get(event.number)
    if intent is None:
        return before, []
    pending = {number: found for number, found in before.pending.items() if number != event.number}
    records: Records = [(IntentKey(group_id, event.number), None)]
    retry = before.retries.get(intent.key)
    if retry is None or retry.number != event.number:
        return replace(before, pending=pending), records
    applied = Retry(retry.number, retry.digest, retry.committed_ms, event.placed, event.lost)
    records.append((RetryKey(group_id, intent.key), applied))
    return replace(before, pending=pending, retries={**before.retries, intent.key: applied}), records


def expire(before: TransactionState, group_id: str, at_ms: int) -> tuple[TransactionState, Records]:
    """Forget the retry keys that are older than a day, except the newest."""
    old = [
        key
        for key, retry in [*before.retries.items()][:-1]
        if retry.placed is not None and retry.committed_ms + RETRY_RETENTION_MS <= at_ms
    ]
    if not old:
        return before, []
    retries = {key: retry for key, retry in before.retries.items() if key not in {*old}}
    return replace(before, retries=retries), [(RetryKey(group_id, key), None) for key in old]


def forget(before: TransactionState, group_id: str) -> Records:
    """The records that delete all transactions, when none is pending."""
    if not before.number:
        return []
    return [(TransactionsKey(group_id), None), *((RetryKey(group_id, key), None) for key in before.retries)]


def remember(
    count: TransactionsValue | None, pending: Mapping[int, Intent], retries: Mapping[str, Retry]
) -> TransactionState:
    """The state of these records, which may be in any order."""
    if count is None:
        return TransactionState()
    return TransactionState(
        count.producer_id,
        count.number,
        dict(sorted(pending.items())),
        dict(sorted(retries.items(), key=lambda item: item[1].number)),
    )
