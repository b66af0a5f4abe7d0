"""The records of one poll: rows of a table, handed out one by one."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from log_tables.record import header_pairs
from log_tables.topic_partition import TopicPartition


class ConsumerRecord(NamedTuple):
    """A record and where it is from. `timestamp` is in milliseconds since 1970 UTC.

    `key` and `value` are bytes or None, or what the consumer's deserializers make of the bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class PendingRecords:
    """Records that wait for the program, and a note of those that it took: an event for each would cost more
    than the record.
    """

    def __init__(self, table: pa.Table | None = None) -> None:
        """`table` has the columns of a poll."""
        self._records = iter(()) if table is None else to_consumer_records(table)
        self._before: dict[TopicPartition, int] = {}
        self._last: ConsumerRecord | None = None

    def take(self) -> ConsumerRecord | None:
        """The next record; None at the end."""
        record = next(self._records, None)
        if record is not None:
            self._before |= _following(self._last)
            self._last = record
        return record

    @property
    def taken(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The offsets after the records that were taken since `forget`: after all but the last, and after the
        last, which the program works at.
        """
        return self._before, _following(self._last)

    def forget(self) -> None:
        """Count from here: all that was taken is noted elsewhere."""
        self._before, self._last = {}, None


def _following(record: ConsumerRecord | None) -> dict[TopicPartition, int]:
    return {} if record is None else {TopicPartition(record.topic, record.partition): record.offset + 1}


def to_consumer_records(table: pa.Table) -> Iterator[ConsumerRecord]:
    """The rows of a table with the columns of a poll."""
    for batch in table.to_batches():
        stamps = (us // 1000 for us in batch.column("timestamp").cast(pa.int64()).to_pylist())
        names = ("topic", "partition", "offset", "key", "value")
        topics, partitions, offsets, keys, values = (batch.column(name).to_pylist() for name in names)
        headers = header_pairs(batch.column("headers"))
        yield from map(ConsumerRecord, topics, partitions, offsets, stamps, keys, values, headers)
