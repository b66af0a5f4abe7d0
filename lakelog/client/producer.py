"""An idempotent producer: what a program holds of it. lakelog/client/dispatch.py sends."""

import logging
import warnings
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import httpx

from lakelog.client import DEFAULT_URL
from lakelog.client.client import Client
from lakelog.client.delivery import Delivery, RecordMetadata
from lakelog.client.dispatch import Dispatch, ProducerConfig, TopicMetadata
from lakelog.client.outgoing import Headers, check_record, check_target
from lakelog.client.serializers import Serializer
from log_tables.clock import Clock, SystemClock
from log_tables.errors import (
    InvalidArgument,
    LakelogError,
    RecordTooLarge,
    Retriable,
    UnknownPartition,
)
from log_tables.limits import MIB
from log_tables.partition.sequencer import client_producer_id

__all__ = ["Producer", "RecordMetadata"]

METADATA_MAX_AGE_S = 300.0
"""How long a topic's partition count is believed (Kafka's metadata.max.age.ms)."""

_log = logging.getLogger(__name__)


class Producer:
    """Sends records to the gateway at `url`. Thread-safe; close it, or use it as a context manager.

    Each record is in the log once, and in the order of `send` within its partition, also when answers are
    lost, and when the gateway dies and comes back within `delivery_timeout_ms`. That is so with acks "all";
    docs/guarantees.md says what "1" and "0" may lose. Records that are still in flight when the process ends
    are lost.

    A record that was not delivered is never lost in silence: its future raises why, and `flush`, `close` and
    the end of a `with` block raise the first one whose future nobody has taken.

    A batch is sent `linger_ms` after its first record, or with `batch_size` bytes. `buffer_memory` (bytes)
    bounds what waits; when it is full, `send` blocks for up to `max_block_ms`. The names and meanings are
    Kafka's. `transport` replaces the network (httpx's transports).

    Keys and values are bytes, or what `key_serializer` and `value_serializer` make bytes of, such as
    `lakelog.json_serializer`. None stays None: no key, and a record that deletes its key.
    """

    def __init__(  # noqa: PLR0913 -- the settings of Kafka's producer
        self,
        url: str = DEFAULT_URL,
        *,
        acks: str = "all",
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        buffer_memory: int = 64 * MIB,
        max_block_ms: float = 60_000,
        request_timeout_ms: float = 30_000,
        delivery_timeout_ms: float = 120_000,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if acks not in ("0", "1", "all"):
            raise InvalidArgument(f"acks={acks!r} is not known; use '0', '1' or 'all'")
        self._clock = clock or SystemClock()
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        config = ProducerConfig(
            acks,
            linger_ms / 1000,
            batch_size,
            buffer_memory,
            max_block_ms / 1000,
            request_timeout_ms / 1000,
            delivery_timeout_ms / 1000,
        )
        self._client = Client(url, timeout_s=config.request_s, transport=transport, clock=self._clock)
        self._id = client_producer_id(self._clock)
        self._topics: dict[str, TopicMetadata] = {}
        self._dispatch = Dispatch(self._client, self._id, self._topics, config, self._clock)
        self._unclosed = finalize(self, _abandon, self._dispatch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except LakelogError as undelivered:  # it must not hide what ended the block
            error.add_note(f"lakelog.Producer: {undelivered}")

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hand over a record; its future says where it is, or raises why it is not there.

        It goes to `partition`, else to that of its key (murmur3), else to the one whose batch is being filled
        (KIP-480). Without `timestamp_ms` (since 1970 UTC) it has the time of this call.

        Errors that are known at once are raised here, and the record takes no room: TypeError for a value,
        key or header that is not bytes, InvalidRecord for a time that no log takes, RecordTooLarge,
        UnknownTopic, UnknownPartition, Unreachable when no gateway answers that tells about the topic, and
        BufferFull when there is no room for `max_block_ms`. An error of a serializer is raised as it is.
        """
        self._dispatch.check_open()
        check_target(topic, partition)
        if key is not None and self._key_serializer is not None:
            key = self._key_serializer(key)
        if value is not None and self._value_serializer is not None:
            value = self._value_serializer(value)
        headers = tuple(headers)
        stamp_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        check_record(value, key, headers, stamp_ms)
        metadata = self._topic(topic, partition)
        size = _checked_size(metadata, value, key, headers)
        return self._dispatch.add(metadata, partition, value, key, headers, stamp_ms, size)

    def flush(self) -> None:
        """Send what waits, at once, and return when all of it is acknowledged or given up.

        Raises the error of the first record that was not delivered since the last flush, with the number of
        all such records. Those whose future was asked (`result`, `exception`) or has a callback do not count:
        their caller has been told. InvalidArgument in a callback of this producer, whose thread sends.
        """
        self._dispatch.flush()
        self._raise_undelivered()

    def close(self) -> None:
        """Refuse more, flush, and end the threads and connections. Raises as `flush` does, once it is closed.

        Closing twice is fine. A `with` block that ends by an exception keeps it, and has a note instead. A
        producer that is dropped without it says so in the log, and as a ResourceWarning.
        """
        self._dispatch.stop_accepting()
        self._dispatch.flush()
        self._dispatch.end()
        self._unclosed.detach()
        self._raise_undelivered()

    def _raise_undelivered(self) -> None:
        error = self._dispatch.undelivered()
        if error is not None:
            raise error

    def _topic(self, name: str, partition: int | None) -> TopicMetadata:
        """The topic, asked for when it is not known, or too old, or too small for `partition`."""
        metadata, now_s = self._topics.get(name), self._clock.monotonic()
        if metadata is None or (partition is not None and not 0 <= partition < metadata.partitions):
            metadata = self._fetch_metadata(name)
        elif now_s - metadata.fetched_s > METADATA_MAX_AGE_S:
            metadata.fetched_s = now_s
            try:
                metadata = self._fetch_metadata(name)
            except Retriable:
                pass  # what was true five minutes ago will do until a gateway answers again
        if partition is not None and not 0 <= partition < metadata.partitions:
            raise UnknownPartition(
                f"topic {name!r} has no partition {partition}; it has 0 to {metadata.partitions - 1}"
            )
        return metadata

    def _fetch_metadata(self, name: str) -> TopicMetadata:
        found = self._client.topic(name)
        count, largest = len(found["partitions"]), int(found["configs"]["max.message.bytes"])
        before = self._topics.get(name)
        sticky = int(self._clock.random() * count) if before is None else before.sticky % count
        metadata = self._topics[name] = TopicMetadata(name, count, largest, self._clock.monotonic(), sticky)
        return metadata


def _abandon(dispatch: Dispatch) -> None:
    """Somebody has let go of a producer, or the process ends, before it was closed."""
    waiting = dispatch.abandon()
    warnings.warn("a lakelog.Producer was not closed; use it in a with block", ResourceWarning, stacklevel=2)
    if waiting:
        _log.error(
            "a producer was not closed, and %d records that wait in it may be lost; close it, or use it in a "
            "with block",
            waiting,
        )


def _checked_size(metadata: TopicMetadata, value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Bytes of a record that can be sent: one that the gateway refuses would take its whole batch with it."""
    size = len(value or b"") + len(key or b"")
    if size > metadata.max_message_bytes:
        raise RecordTooLarge(
            f"the record has {size} bytes, and topic {metadata.name!r} takes {metadata.max_message_bytes}; "
            "send less, or raise max.message.bytes"
        )
    return size + sum(len(name.encode()) + len(content or b"") for name, content in headers)
