"""Events that could not be appended to `__audit`: objects of the root, until a gateway appends them.

One object is one batch with its stamp. Whoever finds it appends the batch by that stamp, and then deletes the
object: so no event is in the log twice, however often that is begun, and by however many gateways.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from log_tables.cluster.admin.audit_log import AuditBatch
from log_tables.cluster.audit_record import decode, encode, flaw
from log_tables.errors import CorruptLog, ObjectMissing
from log_tables.layout import AUDIT_SPILLS, audit_spill_path, is_audit_spill
from log_tables.limits import HTTP_PRODUCER_ID_MAX, MIB, SEQUENCE_MODULUS
from log_tables.partition.partition import ProducerStamp
from log_tables.store.store import ObjectInfo, Store

SPILLED_MAX_BYTES = 64 * MIB
"""The objects of all gateways; beyond it events wait in memory, and are lost when too many do."""


class _Head(msgspec.Struct):
    """The first line: the stamp of the batch, and the number of its events, one in each line that follows."""

    producer: tuple[int, int, int]
    events: int


_heads = msgspec.json.Decoder(_Head)


def encode_batch(batch: AuditBatch) -> bytes:
    """The content of the object of `batch`."""
    stamp = batch.stamp
    head = msgspec.json.encode(_Head((stamp.id, stamp.epoch, stamp.sequence), len(batch.records)))
    return b"".join(line + b"\n" for line in (head, *map(encode, batch.records)))


def decode_batch(data: bytes, path: str) -> AuditBatch:
    """The batch of the object at `path`. Raises CorruptLog."""
    try:
        first, *lines = data.splitlines()
        head = _heads.decode(first)
        producer, epoch, sequence = head.producer
        if len(lines) != head.events or not lines:
            raise ValueError(f"it has {len(lines)} events, and says {head.events}")
        if not 0 <= producer <= HTTP_PRODUCER_ID_MAX or epoch or not 0 <= sequence < SEQUENCE_MODULUS:
            raise ValueError(f"the producer {head.producer} is out of range")
        return AuditBatch([decode(line) for line in lines], ProducerStamp(producer, epoch, sequence))
    except ValueError as error:  # those of msgspec are, too
        raise CorruptLog(
            f"the audit events in {path} cannot be read ({error}); restore the file, or move it away"
        ) from None


def spill(store: Store, batches: Sequence[AuditBatch]) -> None:
    """Put an object for each of `batches`, durable on return.

    Raises StoreUnavailable, OutcomeUnknown: then some may be there.
    """
    for batch in batches:
        # By the stamp: whoever tries it once more puts the same object.
        stamp = batch.stamp
        unique_id = f"{stamp.id:016x}{stamp.sequence:016x}"
        path = audit_spill_path(min(each.time_ms for each in batch.records), unique_id)
        store.put(path, encode_batch(batch))


def spilled(store: Store) -> list[ObjectInfo]:
    """The objects that wait, those of earlier events first. Raises StoreUnavailable."""
    return [item for item in store.list(f"{AUDIT_SPILLS}/") if is_audit_spill(item.path)]


def read_batch(store: Store, path: str) -> AuditBatch | None:
    """The batch of an object; None if it is gone, as another gateway has appended it.

    Raises CorruptLog, StoreUnavailable.
    """
    with suppress(ObjectMissing):
        return decode_batch(store.get(path), path)
    return None


def spill_problems(store: Store) -> Iterator[str]:
    """The objects, or their events, that nobody can append."""
    for item in store.list(f"{AUDIT_SPILLS}/"):
        if not is_audit_spill(item.path):
            yield f"{item.path} is no object of audit events; move it away"
            continue
        try:
            batch = read_batch(store, item.path)
        except CorruptLog as error:
            yield error.message
            continue
        for record in () if batch is None else batch.records:
            said = flaw(encode(record), record.time_ms * 1000)
            if said is not None:
                yield f"an event in {item.path} {said}; restore the file, or move it away"
