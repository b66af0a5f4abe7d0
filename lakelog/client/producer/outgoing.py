"""The checks of a record before it joins a batch, which the gateway would refuse as a whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index

from log_tables.cluster.topic import check_public
from log_tables.errors import InvalidRecord, RecordTooLarge
from log_tables.limits import RECORD_HARD_MAX_BYTES, TIMESTAMP_BOUNDS, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class TopicMetadata:
    """A topic, as it was at `fetched_s`, and the partition that records without a key go to at the moment."""

    name: str
    partitions: int
    max_message_bytes: int
    key_hash: str
    fetched_s: float
    sticky: int
    is_old: bool = False

    def has(self, partition: int | None) -> bool:
        """Whether a record can go to `partition`; None: to any one."""
        return partition is None or (type(partition) is int and 0 <= partition < self.partitions)


def largest_record(configs: Mapping[str, str]) -> int:
    """Bytes of key and value that a record of a topic with these settings may have.

    Settings are shown only to those who may DESCRIBE_CONFIGS. For others it is what no topic takes more than:
    the gateway checks the rest.
    """
    return int(configs.get("max.message.bytes", RECORD_HARD_MAX_BYTES))


def checked_size(
    topic: TopicMetadata, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None
) -> int:
    """Bytes of a record that can be sent: one that the gateway refuses would take its whole batch with it.

    Raises as `check_record`, and RecordTooLarge.
    """
    if isinstance(value, bytes) and isinstance(key, bytes) and not headers and timestamp_ms is None:
        size = len(value) + len(key)  # nearly every record, and nothing else to check
    else:
        check_record(value, key, headers, 0 if timestamp_ms is None else timestamp_ms)
        size = len(value or b"") + len(key or b"")
    if size > topic.max_message_bytes:
        raise RecordTooLarge(
            f"the record has {size} bytes, and topic {topic.name!r} takes {topic.max_message_bytes}; "
            "send less, or raise max.message.bytes"
        )
    if headers:
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
    return size


def check_record(value: object, key: object, headers: Iterable[object], timestamp_ms: int) -> None:
    """Raise TypeError for content that is not bytes, and for headers that are not pairs of text and bytes.
    Raise InvalidRecord for a time (ms since 1970) that no log takes, and for a header's name that is no text.
    """
    _check_bytes("value", value)
    _check_bytes("key", key)
    try:
        if isinstance(timestamp_ms, bool):
            raise TypeError
        milliseconds = index(timestamp_ms)
    except TypeError:
        raise TypeError(
            f"timestamp_ms is {type(timestamp_ms).__name__}, not int; give milliseconds since 1970"
        ) from None
    if not TIMESTAMP_MIN_US <= milliseconds * 1000 <= TIMESTAMP_MAX_US:
        raise InvalidRecord(f"timestamp_ms={timestamp_ms} is outside {TIMESTAMP_BOUNDS}; use milliseconds")
    for header in headers:
        _check_header(header)


def check_target(topic: object, partition: object) -> None:
    """Raise TypeError for a topic that is no text, and for a partition that is no number. Raise
    InvalidTopicName for an internal topic.
    """
    if not isinstance(topic, str):
        raise TypeError(f"the topic is {type(topic).__name__}, not str; name it")
    check_public(topic)
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int)):
        raise TypeError(f"the partition is {type(partition).__name__}, not int; name one from 0")


def _check_bytes(what: str, data: object) -> None:
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"the {what} is {type(data).__name__}, not bytes; encode it")


def _check_header(header: object) -> None:
    match header:
        case (str() as name, content):
            _check_bytes("header", content)
        case _:
            shown = repr(header)[:100]
            raise TypeError(f"the header {shown} is not a pair of str and bytes; write [('name', b'...')]")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRecord(f"the header's name {name!r} is no Unicode text; choose another") from None
