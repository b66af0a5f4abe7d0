"""The records that a page of messages or an export asks for: their partitions, keys, the text in them."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import Depends, Query

from api.scalars import decimal, microseconds
from log_tables.errors import InvalidArgument, InvalidOffset
from log_tables.layout import KEY, VALUE
from log_tables.partition.reader import PartitionReader

KeyFormat = Literal["text", "json", "base64"]

TEXT_MAX_CHARS = 1_000
_RANGE = re.compile(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?")
_POSITION = re.compile(r"([0-9]{1,5}):([0-9]{1,19})")

Place = Literal["newest", "oldest", "offset", "time"]

PARTITIONS_MAX_CHARS = 1_000


class RecordFilter(NamedTuple):
    """Records with one of the `keys`, if there are any, that contain `text` in key or value."""

    keys: tuple[bytes, ...] = ()
    text: bytes = b""

    @property
    def takes_all(self) -> bool:
        return not self.keys and not self.text

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch` that the filter takes."""
        if self.keys:
            batch = batch.filter(pc.is_in(batch.column(KEY), pa.array(self.keys, pa.binary())))
        if self.text:
            found = [pc.match_substring(batch.column(name), self.text) for name in (KEY, VALUE)]
            batch = batch.filter(pc.or_(*(pc.fill_null(each, False) for each in found)))
        return batch


def filter_of(key: str, key_format: KeyFormat, text: str) -> RecordFilter:
    """The filter of a form, in which an empty field is none. Raises InvalidArgument."""
    if len(text) > TEXT_MAX_CHARS:
        raise InvalidArgument(
            f"the text to look for has {len(text)} characters; use at most {TEXT_MAX_CHARS}"
        )
    return RecordFilter(stored_keys(key, key_format) if key else (), text.encode())


def stored_keys(key: str, key_format: KeyFormat) -> tuple[bytes, ...]:
    """The keys, as they are stored, that `key` means. Text may be stored with the quotes of JSON, too.

    Raises InvalidArgument.
    """
    if key_format == "text":
        return (key.encode(), msgspec.json.encode(key))
    if key_format == "json":
        try:
            msgspec.json.decode(key)
        except (msgspec.DecodeError, RecursionError):
            raise InvalidArgument(
                f"the key {key[:40]!r} is not JSON; write a text in quotes, or choose text"
            ) from None
        return (key.encode(),)
    try:
        return (b64decode(key, validate=True),)
    except ValueError:
        raise InvalidArgument(f"the key {key[:40]!r} is not base64; correct it, or choose text") from None


def partitions_of(named: str, count: int) -> list[int]:
    """The partitions of a topic of `count` that a form names, as in `0, 4-7`; all for the empty text.

    Raises InvalidArgument.
    """
    if not named.strip():
        return [*range(count)]
    found: set[int] = set()
    for part in named.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InvalidArgument(f"{part[:40]!r} names no partition; write numbers, such as 0, 4-7")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first > last or last >= count:
            raise InvalidArgument(f"there is no partition {part.strip()}; the topic has 0 to {count - 1}")
        found.update(range(first, last + 1))
    return sorted(found)


def positions_of(cursor: str) -> dict[int, int]:
    """The offset in each partition that a link says to go on from, as in `0:41,1:7`.

    Raises InvalidArgument.
    """
    found: dict[int, int] = {}
    for part in cursor.split(",") if cursor else ():
        match = _POSITION.fullmatch(part)
        if match is None:
            raise InvalidArgument(f"{cursor[:40]!r} is no place to go on from; load the messages again")
        found[int(match[1])] = int(match[2])
    return found


def cursor_of(positions: Mapping[int, int]) -> str:
    """The reverse of `positions_of`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in positions.items())


def shown_ranges(partitions: Sequence[int]) -> str:
    """The reverse of `partitions_of`: neighbours as a range."""
    parts: list[list[int]] = []
    for partition in partitions:
        if parts and parts[-1][1] == partition - 1:
            parts[-1][1] = partition
        else:
            parts.append([partition, partition])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in parts)


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """The fields of the form, as they stand in the address."""

    partition: Annotated[str, Query(max_length=PARTITIONS_MAX_CHARS)] = ""
    start: Annotated[Place | None, Query()] = None
    offset: Annotated[str, Query()] = ""
    time: Annotated[str, Query()] = ""
    key: Annotated[str, Query()] = ""
    key_format: Annotated[KeyFormat, Query()] = "text"
    text: Annotated[str, Query()] = ""

    def from_place(self, start: Place) -> "RecordQuery":
        """This query, from `start` on where it names no other place."""
        return self if self.start is not None else replace(self, start=start)

    def url(self, page: str, **more: str) -> str:
        """The address of a page with the same fields; those that are empty are left out."""
        fields = {name: value for name, value in {**asdict(self), **more}.items() if value}
        if not self.key:
            fields.pop("key_format", None)
        return f"{page}?{urlencode(fields)}"

    def filter(self) -> RecordFilter:
        """Which records it takes. Raises InvalidArgument."""
        return filter_of(self.key, self.key_format, self.text)

    def first_of(self, reader: PartitionReader) -> int:
        """The offset of `reader` from which it takes records; blocking. The newest are not sought here.

        Raises InvalidOffset, InvalidArgument, and what reading raises.
        """
        if self.start == "offset":
            return min(max(offset_of(self.offset), reader.log_start), reader.high_watermark)
        if self.start == "time":
            found = reader.position(microseconds(self.time))
            return reader.high_watermark if found is None else found
        return reader.log_start


AskedRecords = Annotated[RecordQuery, Depends(RecordQuery)]
"""A route's parameters that say which records."""


def offset_of(text: str) -> int:
    """The offset that a form has. Raises InvalidOffset."""
    found = decimal(text.strip())
    if found is None or found < 0:
        raise InvalidOffset(f"offset {text[:40]!r} is no offset; write its digits, as 41")
    return found
