"""Messages between a gateway and the process that answers its queries (log_tables/sql/server.py).

The process reads lines of JSON from its standard input: one `RootRequest`, then `QueryRequest`s, one at a
time. It writes frames: a byte that says the kind, four that say the length, and the content.
A request names the tables that its query may see.
"""

import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Literal

import msgspec

from log_tables.schemas.registry_client import RegistryAccess

AnswerForm = Literal["json", "arrow", "csv", "ndjson", "parquet"]
"""Rows for a page, streams of Arrow for a program, or a file."""


class TableAccess(msgspec.Struct, frozen=True):
    """The tables and rows that exist for one query. It learns of no others, not by messages either.

    `topics` may be read. `tables` are of the system tables. Their rows about groups are those of `groups`, in
    the topics `described`.
    """

    topics: AbstractSet[str]
    tables: AbstractSet[str]
    groups: AbstractSet[str]
    described: AbstractSet[str]

    def shows(self, group: str, topic: str) -> bool:
        """Whether the offset of `group` in `topic` may be seen."""
        return group in self.groups and topic in self.described


HEAD = struct.Struct(">cI")
"""The head of a frame: its kind, and the length of its content."""


class FrameKind(Enum):
    """The kinds of frames, in the order in which they come."""

    READY = b"S"
    """Once, without content: the root is open."""

    TABLES = b"T"
    """A `TablesRead`, before they are read."""

    COLUMNS = b"C"
    """A list of `AnswerColumn`."""

    ROWS = b"R"
    """A list of rows, each a list of cells: null, a text, or a `EncodedText`. In an answer as Arrow, an IPC
    stream, the first without rows; in one as a file, the next piece of it.
    """

    DONE = b"D"
    """A `QueryResult`: there are no more rows."""

    ERROR = b"E"
    """A `QueryFailure`: there are no more rows."""


class RootRequest(msgspec.Struct):
    """The root that is asked, the memory that a query may take, and the registries of schemas that may be
    asked, too.
    """

    url: str
    store_options: Mapping[str, str]
    memory_bytes: int
    registries: Sequence[RegistryAccess] = ()


class QueryRequest(msgspec.Struct):
    """A query, and how many rows and bytes of an answer are wanted at most: in all forms but `json` all."""

    sql: str
    access: TableAccess
    rows_max: int
    bytes_max: int
    form: AnswerForm = "json"


class TablesRead(msgspec.Struct):
    """The names of the topics and of the system tables that a query reads."""

    topics: Sequence[str]
    tables: Sequence[str]


class AnswerColumn(msgspec.Struct):
    """A column of an answer. Its kind is number, time or text."""

    name: str
    type: str
    kind: str


class Scan(msgspec.Struct):
    """How many of the files of a topic were read."""

    topic: str
    read: int
    files: int


class QueryResult(msgspec.Struct):
    """The number of rows, and the memory that the process has now. `cut` is the bound that has ended the
    answer, "rows" or "bytes", or empty.
    """

    rows: int
    cut: str
    scans: Sequence[Scan]
    memory_bytes: int = 0


class QueryFailure(msgspec.Struct):
    """An error, by the `code` of its class; "" is a mistake of ours, which is told to no client."""

    code: str
    message: str
    memory_bytes: int


def frame(kind: FrameKind, content: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return HEAD.pack(kind.value, len(content)) + content
