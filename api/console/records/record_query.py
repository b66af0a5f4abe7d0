"""The records that the address of a page asks for: the same fields for messages and for an export."""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query

from api.console.records.record_filter import KeyFormat, RecordFilter, filter_of
from api.scalars import decimal, microseconds
from log_tables.errors import InvalidOffset
from log_tables.partition.reader import PartitionReader

Place = Literal["newest", "oldest", "offset", "time"]

PARTITIONS_MAX_CHARS = 1_000


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
