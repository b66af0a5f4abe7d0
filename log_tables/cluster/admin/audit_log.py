"""The topic `__audit`: who has changed what, who was refused, and who has read and written what.

Gateways append to it as to other topics. Commands that change the root past every gateway append to it, too,
once it is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from log_tables.clock import Clock
from log_tables.cluster.admin.internal_log import records_of
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord, decode, encode, may_be, row_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.keyed_log import WRITERS_RACE
from log_tables.cluster.topic import Topic
from log_tables.errors import CorruptLog, NotLeader, TopicExists
from log_tables.layout import AUDIT
from log_tables.limits import BATCH_MAX_BYTES, METADATA_ATTEMPTS_MAX
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.partition.sequencer import client_producer_id
from log_tables.record import Record, input_batch, to_records

AUDIT_SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("principal", pa.string()),
        pa.field("address", pa.string()),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("resource_type", pa.string()),
        pa.field("resource_name", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("error_code", pa.int32()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("gateway", pa.string()),
        pa.field("event", pa.string(), nullable=False),
    ]
)
"""The table `audit`: one row for each event."""


def keep_audit_topic(cluster: Cluster, configs: Mapping[str, str]) -> Topic:
    """The topic `__audit`, with these settings: it is created, or altered, where need be; blocking.

    Raises StoreUnavailable, CorruptLog, NotLeader.
    """
    cluster.refresh()
    known = cluster.cached_topic(AUDIT)
    if known is None:
        with suppress(TopicExists):
            return create_topic(cluster, AUDIT, 1, configs, internal=True)
        known = cluster.topic(AUDIT)
    if any(known.config[name] != value for name, value in configs.items()):
        return alter_topic(cluster, AUDIT, configs, internal=True)
    return known


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """Events, at least one, and the stamp by which they are appended once, however often it is tried."""

    records: Sequence[AuditRecord]
    stamp: ProducerStamp

    @property
    def count(self) -> int:
        """The events; one that stands for many counts as one, a loss as all that are lost."""
        return sum(each.count if each.kind is AuditKind.LOSS else 1 for each in self.records)

    def request(self, now_us: int) -> AppendRequest:
        """As it is appended to `__audit`; a record has the time of its event."""
        rows = [Record(encode(record), timestamp_us=record.time_ms * 1000) for record in self.records]
        return AppendRequest(input_batch(rows, now_us), self.stamp)


def first_batch(clock: Clock, records: Sequence[AuditRecord]) -> AuditBatch:
    """Events as the first batch of a new producer."""
    return AuditBatch(records, ProducerStamp(client_producer_id(clock), 0, 0))


def append_events(cluster: Cluster, records: Sequence[AuditRecord]) -> None:
    """As `append_batch`, of events, if there are any, that nobody has tried to append before."""
    if records:
        append_batch(cluster, first_batch(cluster.clock, records))


def append_batch(cluster: Cluster, batch: AuditBatch) -> None:
    """Append events in one commit, past every gateway; nothing where there is no audit log, or if they are in
    it.

    Raises NotLeader when too many processes append, StoreUnavailable, CorruptLog, OutcomeUnknown.
    """
    cluster.refresh()
    topic = cluster.cached_topic(AUDIT)
    if topic is None:
        return
    partition = topic.partition(0)
    request = batch.request(cluster.clock.now_us())
    for _ in WRITERS_RACE.attempts(cluster.clock, METADATA_ATTEMPTS_MAX):
        with suppress(NotLeader):
            partition.claim(cluster.url)
            partition.append([request])
            return
    raise NotLeader("too many processes append to the audit log at once; the event is not in it")


def audit_table(cluster: Cluster) -> pa.Table:
    """The rows of `audit`, as `audit_batches`, in memory."""
    return pa.Table.from_batches(audit_batches(cluster), AUDIT_SCHEMA)


def audit_batches(cluster: Cluster) -> Iterator[pa.RecordBatch]:
    """The rows of `audit`, as AUDIT_SCHEMA, in the order of the log; none where nobody audits.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    for records in records_of(cluster, AUDIT):
        yield pa.RecordBatch.from_pylist([_row(record) for record in records], AUDIT_SCHEMA)


def events_before(cluster: Cluster, end: int | None, most: int) -> tuple[list[dict[str, object]], int | None]:
    """At most `most` rows of `audit` below offset `end`, the newest first, each with its `offset`, and the
    offset below which there are more, if there are; blocking. Without `end` they are the newest.

    Raises as `audit_batches`.
    """
    topic = cluster.cached_topic(AUDIT)
    if topic is None:
        return [], None
    partition = topic.partition(0)
    partition.refresh()
    end = partition.high_watermark if end is None else min(end, partition.high_watermark)
    first = at = max(partition.log_start, end - most)
    found: list[dict[str, object]] = []
    while at < end:
        plan = partition.plan_read(at, BATCH_MAX_BYTES)
        for batch in partition.read(plan):
            records = [each for each in to_records(batch) if (each.offset or 0) < end]
            found += [{**_row(each), "offset": each.offset} for each in records]
        at = plan.end
    return found[::-1], first if first > partition.log_start else None


def _row(record: Record) -> dict[str, object]:
    """A record of `__audit` as a row of `audit`. Raises CorruptLog."""
    try:
        return row_of(record.value or b"")
    except (msgspec.MsgspecError, ValueError) as error:
        raise corrupt_event(record.offset, error) from None


def event_of(kind: AuditKind, offset: int | None, value: bytes) -> AuditRecord | None:
    """The event at `offset` of `__audit`, if it is of this kind. Raises CorruptLog."""
    if not may_be(kind, value):
        return None
    try:
        event = decode(value)
    except ValueError as error:  # those of msgspec are, too
        raise corrupt_event(offset, error) from None
    return event if event.kind is kind else None


def corrupt_event(offset: int | None, error: Exception) -> CorruptLog:
    """The error for a record that is no event."""
    return CorruptLog(
        f"the record at offset {offset} of {AUDIT} is not an event ({error}); skip it by `time`"
    )
