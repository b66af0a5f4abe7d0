"""A transactional id as a pure state: its producer, and its newest transaction that has ended.

Each function returns the next state, which is a record of the id; the same object where nothing changes. The
epoch of a producer fences older ones (KIP-98, KIP-360). A client of transaction version 2 gets another epoch
with each end (KIP-890). Transactions are numbered besides, for clients whose epoch stays.
"""

from dataclasses import dataclass

import msgspec

from log_tables.cluster.group_log import ProducerValue
from log_tables.errors import InvalidTransactionState, StaleProducerEpoch, UnknownProducer

EPOCH_MAX = 2**15 - 2
"""The last epoch of an id: Kafka's are int16, and its clients take another id then (KIP-360)."""

NO_PRODUCER = -1
"""The producer id and the epoch of a client that has none yet."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A client begins with an id; it names the producer id and the epoch that it had, if any.

    `was_open`: a transaction is open, which ends with it; None where one may be of which the coordinator does
    not know, as it has taken over since. `telling` are the groups of that one.
    `new_producer_id` is for an id that needs one. `at_ms`: milliseconds since 1970.
    """

    timeout_ms: int
    new_producer_id: int
    at_ms: int
    producer_id: int = NO_PRODUCER
    epoch: int = NO_PRODUCER
    was_open: bool | None = False
    telling: tuple[str, ...] = ()
    principal: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The open transaction ends. `moves_on`: the producer gets another epoch (KIP-890).

    `was_open` is None where that is not known: the coordinator has taken over since, and a transaction may
    have begun that nothing was written in.
    """

    producer_id: int
    epoch: int
    commits: bool
    new_producer_id: int
    at_ms: int
    moves_on: bool = False
    was_open: bool | None = True
    telling: tuple[str, ...] = ()
    sequences: tuple[tuple[str, int, int], ...] = ()
    intent: int = 0


def begun(name: str, before: ProducerValue | None, event: Begin) -> ProducerValue:
    """The id `name` after `event`: its producer has another epoch, and older ones are fenced.

    A repeat changes nothing. Raises StaleProducerEpoch, UnknownProducer.
    """
    if before is None:
        if event.producer_id != NO_PRODUCER:
            raise _unknown(name, event.producer_id)
        return ProducerValue(
            event.new_producer_id,
            0,
            event.timeout_ms,
            changed_ms=event.at_ms,
            principal=event.principal,
        )
    if event.producer_id != NO_PRODUCER:
        if (event.producer_id, event.epoch) == before.replaced and event.was_open is not True:
            return before
        check(name, before, event.producer_id, event.epoch)
    made = _moved_on(before, event.new_producer_id)
    if event.producer_id == NO_PRODUCER:
        # Nobody who had the epoch before may take the new one for a repeat: it is another client's.
        made = msgspec.structs.replace(made, replaced=None)
    if event.was_open is not False:
        made = msgspec.structs.replace(made, number=before.number + 1, committed=False, telling=event.telling)
    return msgspec.structs.replace(
        made,
        timeout_ms=event.timeout_ms,
        by_end=False,
        groups=(),
        sequences=(),
        changed_ms=event.at_ms,
        principal=event.principal,
    )


def ended(name: str, before: ProducerValue | None, event: End) -> ProducerValue:
    """The id `name` after the end of its transaction. A repeat changes nothing.

    Raises StaleProducerEpoch, UnknownProducer; InvalidTransactionState where none is open.
    """
    if before is None:
        raise _unknown(name, event.producer_id)
    asked = event.producer_id, event.epoch
    if asked == before.replaced and before.by_end and event.moves_on:
        return _repeated(name, before, event)
    check(name, before, *asked)
    if event.was_open is False and event.commits and event.moves_on:
        raise _none_open(name)
    if event.was_open is False and not event.moves_on and (event.commits or before.committed):
        return _repeated(name, before, event)
    # One that nobody here knows is aborted, too: it may be lost with the last coordinator, and what comes
    # late of it must not be the next one's.
    made = _moved_on(before, event.new_producer_id) if event.moves_on else before
    return msgspec.structs.replace(
        made,
        number=before.number + 1,
        committed=event.commits,
        by_end=event.moves_on,
        replaced=made.replaced if event.moves_on else None,
        telling=event.telling,
        sequences=() if event.moves_on else event.sequences or before.sequences,
        intent=event.intent or before.intent,
        changed_ms=event.at_ms,
    )


def fenced(
    before: ProducerValue, new_producer_id: int, at_ms: int, telling: tuple[str, ...]
) -> ProducerValue:
    """The id after its open transaction took too long: it is aborted, and its producer fenced (KIP-98). A
    client of transaction version 2 aborts it, too, and goes on.
    """
    return msgspec.structs.replace(
        _moved_on(before, new_producer_id),
        number=before.number + 1,
        committed=False,
        by_end=True,
        telling=telling,
        sequences=(),
        changed_ms=at_ms,
    )


def check(name: str, before: ProducerValue | None, producer_id: int, epoch: int) -> ProducerValue:
    """The id, if this is its producer. Raises StaleProducerEpoch, UnknownProducer."""
    if before is None or producer_id != before.producer_id:
        raise _unknown(name, producer_id)
    if epoch != before.epoch:
        raise StaleProducerEpoch(
            f"the transactional id {name[:100]!r} has a producer of epoch {before.epoch}, not {epoch}; "
            "another client has begun with the id, or a transaction took too long: begin again",
            current=before.epoch,
        )
    return before


def _moved_on(before: ProducerValue, new_producer_id: int) -> ProducerValue:
    place = before.producer_id, before.epoch
    if before.epoch < EPOCH_MAX:
        return msgspec.structs.replace(before, epoch=before.epoch + 1, replaced=place)
    return msgspec.structs.replace(before, producer_id=new_producer_id, epoch=0, replaced=place)


def _repeated(name: str, before: ProducerValue, event: End) -> ProducerValue:
    if not before.number:
        raise _none_open(name)
    if before.committed != event.commits:
        how = "committed" if before.committed else "aborted"
        raise InvalidTransactionState(
            f"the last transaction of the transactional id {name[:100]!r} was {how}; begin another one"
        )
    return before


def _none_open(name: str) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"no transaction of the transactional id {name[:100]!r} is open; begin one"
    )


def _unknown(name: str, producer_id: int) -> UnknownProducer:
    return UnknownProducer(
        f"the transactional id {name[:100]!r} does not belong to producer {producer_id}; begin again"
    )
