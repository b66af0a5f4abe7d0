"""Records of the source between two offsets of a partition, for those who compare and do not copy."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import pyarrow as pa
from confluent_kafka import KafkaError, Message, TopicPartition

from jobs.mirror.columns import records_of
from jobs.mirror.source import ASKED_S, NotNow, Source, error_of
from log_tables.clock import timer
from log_tables.topic_partition import TopicPartition as Place

_READING = {"fetch_wait_max_ms": 10, "queued_min_messages": 50_000, "queued_max_messages_kbytes": 8 * 1024}
"""A broker does not wait for records that are not there yet, or a request for the next place would wait, too.
librdkafka takes some hundred bytes for each message that it has read ahead.
"""

_MANY = 10_000
_MOMENT_S = 0.05
_SILENT_MAX = 6
"""How often a source that answers, and gives no record, is asked whether it is there."""

_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_FATAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


class SourceReader:
    """Reads one partition of a source after the other. Of one thread."""

    def __init__(self, source: Source) -> None:
        """Raises InvalidArgument."""
        self._source, self._consumer = source, source.consumer(**_READING)

    def __enter__(self) -> "SourceReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, place: Place, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records with start ≤ offset < end, in batches that are not empty.

        What the source deletes meanwhile is left out. Raises Unreachable, NotNow, UnknownAtSource,
        AuthorizationFailed, InvalidRecord.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(*place, start)])
        try:
            yield from self._until(place, start, end)
        finally:
            self._consumer.unassign()

    def _until(self, place: Place, at: int, end: int) -> Iterator[pa.RecordBatch]:
        heard, silent = timer(), 0
        while at < end:
            messages = self._consumer.consume(_MANY, _MOMENT_S)
            if messages:
                heard, silent = timer(), 0
            elif timer() - heard > ASKED_S:
                heard, silent = timer(), silent + 1
                self._check_answers(place, at, silent)
            records = (
                [each for each in messages if each.error() is None] if _has_error(messages) else messages
            )
            below = _below(records, end)
            if below:
                yield records_of(below)
            if records:
                at = _offset(records[-1]) + 1
            if len(records) < len(messages):
                at = self._after_errors(place, at, [each for each in messages if each.error() is not None])

    def _check_answers(self, place: Place, at: int, silent: int) -> None:
        ranges = self._source.ranges([place])
        if place not in ranges or silent >= _SILENT_MAX:
            raise NotNow(
                f"the source at {self._source.bootstrap} gives no records of {place} from offset {at} on; "
                "see that the partition has a leader, and verify again"
            )

    def _after_errors(self, place: Place, at: int, found: Sequence[Message]) -> int:
        """The offset to go on from."""
        for message in found:
            error = message.error()
            assert error is not None
            if error.code() == KafkaError._PARTITION_EOF:
                at = max(at, message.offset() or 0)
            elif error.code() in _LOST:
                at = self._behind_deleted(place, at, error)
            elif error.code() in _FATAL or error.fatal():
                raise error_of(error, self._source.bootstrap)
        return at

    def _behind_deleted(self, place: Place, at: int, error: KafkaError) -> int:
        """The first offset that the source still has, from where is read on."""
        known = self._source.ranges([place]).get(place)
        if known is None or known.start <= at:
            raise NotNow(
                f"the source at {self._source.bootstrap} refuses offset {at} of {place} ({error.str()}); "
                "verify again"
            )
        self._consumer.assign([TopicPartition(*place, known.start)])
        return known.start


def _has_error(messages: Sequence[Message]) -> bool:
    return any(map(Message.error, messages))


def _below(records: Sequence[Message], end: int) -> Sequence[Message]:
    if not records or _offset(records[-1]) < end:
        return records
    return [*takewhile(lambda each: _offset(each) < end, records)]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
