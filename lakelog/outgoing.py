"""A record that a program wants to send: checked before it joins others, which a refusal would take along."""

from collections.abc import Sequence

from log_tables.errors import InvalidRecord
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Headers = Sequence[tuple[str, bytes | None]]


def check_record(value: object, key: object, headers: Headers, timestamp_ms: int) -> None:
    """Raise InvalidRecord for content that is not bytes, and for a time (ms since 1970) that no log takes."""
    _check_bytes("value", value)
    _check_bytes("key", key)
    if not TIMESTAMP_MIN_US <= timestamp_ms * 1000 <= TIMESTAMP_MAX_US:
        raise InvalidRecord(f"timestamp_ms={timestamp_ms} is outside the years 1 to 9999; use milliseconds")
    for _, content in headers:
        _check_bytes("header", content)


def _check_bytes(what: str, data: object) -> None:
    if data is not None and not isinstance(data, bytes):
        raise InvalidRecord(f"the {what} is {type(data).__name__}, not bytes; encode it")
