"""Who wrote which records, by the audit log: the events `write`, as rows, and the one of a record."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from log_tables.cluster.admin.audit_log import corrupt_event, event_of
from log_tables.cluster.admin.internal_log import records_before, records_of
from log_tables.cluster.audit_record import AuditKind, AuditRecord, writes_of
from log_tables.cluster.cluster import Cluster
from log_tables.layout import AUDIT

WRITES_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("principal", pa.string(), nullable=False),
        pa.field("address", pa.string()),
        pa.field("gateway", pa.string()),
        pa.field("first_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("last_time", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""The table `audit_writes`: a row for each range of offsets that one principal has written from one address.
The times are those of the first and the last commit of the event that tells it, not of the range alone.
"""


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """Offsets of one partition that a principal has written, between two times in milliseconds since 1970.

    `address` is empty where it is not known: of transactions of a transactional id. `gateway` has committed
    them.
    """

    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    principal: str
    address: str
    gateway: str
    first_ms: int
    last_ms: int


def written_ranges(record: AuditRecord) -> Iterator[WrittenRange]:
    """The ranges that an event `write` tells. Raises ValueError for one that tells none."""
    topic_id, partitions = writes_of(record)
    about = record.resource_name, topic_id
    who = record.principal or "", record.address, record.gateway
    times = record.time_ms, record.end_ms or record.time_ms
    for partition, ranges in partitions.items():
        for first, last in ranges:
            yield WrittenRange(*about, partition, first, last, *who, *times)


def writes_batches(cluster: Cluster) -> Iterator[pa.RecordBatch]:
    """The rows of `audit_writes`, as WRITES_SCHEMA, in the order of the log; none where nobody notes them.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    for records in records_of(cluster, AUDIT):
        rows = [row for record in records for row in write_rows(record.offset, record.value)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)


def write_rows(offset: int | None, value: bytes | None) -> list[dict[str, object]]:
    """The rows of `audit_writes` of an event at `offset` of the log. Raises CorruptLog."""
    return [_row(each) for each in _ranges(offset, value or b"")]


def writer_of(
    cluster: Cluster, topic: str, topic_id: str, partition: int, offset: int, most: int | None = None
) -> WrittenRange | None:
    """Who wrote the record of a topic's partition at `offset`; None where the audit log does not say. It is
    read from its end, or only its newest `most` events. Blocking.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    named = msgspec.json.encode(topic_id)
    for record in records_before(cluster, AUDIT, most):
        value = record.value or b""
        if named not in value:
            continue
        for each in _ranges(record.offset, value):
            at = each.topic, each.topic_id, each.partition
            if at == (topic, topic_id, partition) and each.first_offset <= offset <= each.last_offset:
                return each
    return None


def _ranges(offset: int | None, value: bytes) -> list[WrittenRange]:
    event = event_of(AuditKind.WRITE, offset, value)
    try:
        return [] if event is None else [*written_ranges(event)]
    except ValueError as error:
        raise corrupt_event(offset, error) from None


def _row(found: WrittenRange) -> dict[str, object]:
    return {
        "topic": found.topic,
        "topic_id": found.topic_id,
        "partition": found.partition,
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "principal": found.principal,
        "address": found.address or None,
        "gateway": found.gateway or None,
        "first_time": found.first_ms * 1000,
        "last_time": found.last_ms * 1000,
    }
