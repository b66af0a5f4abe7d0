"""The declaration of a topic's columns: `carrier string, dep_delay double, at timestamp FROM '/time_hour'`.

It is Spark's DDL, with a JSON pointer (RFC 6901) where the field of the values has another name or place. A
column has one type and one pointer for ever, as the records that have it keep it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import mmh3
import pyarrow as pa

from log_tables.columns.column_type import (
    ddl,
    delta_field,
    leaf_count,
    of_delta,
    quoted,
    without_case,
)
from log_tables.columns.ddl_reader import UNSOUGHT, DdlReader, check_plain_name
from log_tables.errors import InvalidConfig
from log_tables.layout import VALUE_ERROR
from log_tables.limits import (
    COLUMNS_MAX,
    COLUMNS_TEXT_MAX_CHARS,
    LEAF_COLUMNS_MAX,
    VALUE_DEPTH_MAX,
)
from log_tables.schemas.decoded import JSON, Encoding

PATH = "lakelog.path"
"""The entry in the metadata of a Delta field that holds the pointer of a declared column."""

RESERVED = frozenset(
    [
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "partition",
        "topic",
        "value_text",
        "key_text",
        "value_error",
        "timestamptype",
        "_raw",
        "_error",
        "_metadata",
    ]
)
"""Names that columns of ours have, of segments, of views or of Spark's source; as `without_case` has them."""

_SUFFIX = "_json"
_POINTER = re.compile(r"(/(?:[^~/]|~[01])*)+")


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column: its name, its type (`column_type`), and the pointer to its field in a value."""

    name: str
    type: pa.DataType
    pointer: str

    @property
    def steps(self) -> tuple[str, ...]:
        """The names that lead from a value to the field."""
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in self.pointer.split("/")[1:])

    def at(self, steps: Sequence[str]) -> "Column":
        """The column made of the field to which `steps` lead."""
        return replace(self, pointer="".join(map(own_pointer, steps)))

    @property
    def text(self) -> str:
        """The column as a declaration spells it."""
        name = quoted(self.name)
        if self.pointer == own_pointer(self.name):
            return f"{name} {ddl(self.type)}"
        pointer = self.pointer.replace("'", "''")
        return f"{name} {ddl(self.type)} FROM '{pointer}'"


@dataclass(frozen=True)
class Declaration:
    """The columns of a topic, in order, and how the values are encoded of which they are made.

    One without columns declares nothing. What a table says of its columns is without an encoding.
    """

    columns: tuple[Column, ...] = ()
    encoding: Encoding = JSON

    @property
    def text(self) -> str:
        """The declaration as `parse` takes it."""
        return ", ".join(column.text for column in self.columns)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits that stand for the set of columns: their order changes no value. "" for
        none. The format follows if it is not JSON, then the digits of the one schema if there is one, each
        after a dot.
        """
        if not self.columns:
            return ""
        parts = [_digits("\n".join(sorted(column.text for column in self.columns)))]
        if not self.encoding.is_json:
            parts.append(self.encoding.format)
        if self.encoding.schema is not None:
            parts.append(_digits(self.encoding.schema.text))
        return ".".join(parts)

    def __hash__(self) -> int:
        return hash(self.id)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns in a segment: `value_error`, then the declared ones. Without columns there is none."""
        if not self.columns:
            return pa.schema([])
        return pa.schema(
            [(VALUE_ERROR, pa.string()), *((column.name, column.type) for column in self.columns)]
        )

    def fields(self) -> list[dict[str, object]]:
        """The columns as fields of a Delta table's `schemaString`."""
        if not self.columns:
            return []
        own = [delta_field(column.name, column.type, {PATH: column.pointer}) for column in self.columns]
        return [delta_field(VALUE_ERROR, pa.string()), *own]

    def grown(self, other: "Declaration") -> "Declaration":
        """This one and the columns of `other` that it lacks. Raises InvalidConfig for a changed column."""
        known = {without_case(column.name): column for column in self.columns}
        for column in other.columns:
            before = known.get(without_case(column.name))
            if before not in (None, column):
                assert before is not None
                raise InvalidConfig(
                    f"the column {before.text} cannot become {column.text}, as its records keep what they "
                    "have; declare a new column under another name, and leave this one out"
                )
        return self.joined(other)

    def joined(self, other: "Declaration") -> "Declaration":
        """This one and the columns of `other` whose names it lacks."""
        return _joined(self, other)

    def held_by(self, table: "Declaration") -> "Declaration":
        """The columns that `table` has, too, in its order."""
        return _held_by(self, table)


def _digits(text: str) -> str:
    return f"{mmh3.hash128(text, signed=False) & (2**64 - 1):016x}"


# A commit asks for both, and compares what it gets with what it got before: that is free for the same object.
@lru_cache(maxsize=1024)
def _joined(one: Declaration, other: Declaration) -> Declaration:
    known = {without_case(column.name) for column in one.columns}
    added = tuple(column for column in other.columns if without_case(column.name) not in known)
    return replace(one, columns=(*one.columns, *added)) if added else one


@lru_cache(maxsize=1024)
def _held_by(one: Declaration, table: Declaration) -> Declaration:
    mine = {*one.columns}
    return replace(one, columns=tuple(column for column in table.columns if column in mine))


NOTHING = Declaration()


@lru_cache(maxsize=1024)
def declaration_of_schema(schema_string: str) -> Declaration:
    """All columns that were ever declared, from the `schemaString` of a table of ours."""
    fields = json.loads(schema_string)["fields"]
    found = [each for each in fields if PATH in each["metadata"]]
    return Declaration(
        tuple(Column(each["name"], of_delta(each["type"]), each["metadata"][PATH]) for each in found)
    )


@lru_cache(maxsize=1024)
def parse(text: str) -> Declaration:
    """The declaration in `text`; the empty text declares nothing. Raises InvalidConfig."""
    if len(text) > COLUMNS_TEXT_MAX_CHARS:
        raise InvalidConfig(
            f"the declaration has {len(text)} characters; use at most {COLUMNS_TEXT_MAX_CHARS}"
        )
    if not text.strip():
        return NOTHING
    columns = [*_columns(DdlReader(text))]
    check_count(Declaration(tuple(columns)))
    taken: set[str] = set()
    for column in columns:
        check_name(column.name)
        if without_case(column.name) in taken:
            raise InvalidConfig(f"the column {column.name} is declared twice; leave one of them out")
        taken.add(without_case(column.name))
        _check_pointer(column)
    return Declaration(tuple(columns))


def _columns(reader: DdlReader) -> Iterator[Column]:
    """All columns of a declaration."""
    yield _column(reader)
    while not reader.is_at_end():
        reader.expect(",")
        yield _column(reader)


def _column(reader: DdlReader) -> Column:
    name, kind = reader.name(), reader.type()
    pointer = reader.text_after("from")
    return Column(name, kind, own_pointer(name) if pointer is None else pointer)


def check_count(declaration: Declaration) -> None:
    """Raise InvalidConfig for more columns than a topic can ever have."""
    if len(declaration.columns) > COLUMNS_MAX:
        raise InvalidConfig(
            f"the topic would have {len(declaration.columns)} columns, with those that were left out; it can "
            f"have {COLUMNS_MAX}"
        )
    leaves = sum(leaf_count(column.type) for column in declaration.columns)
    if leaves > LEAF_COLUMNS_MAX:
        raise InvalidConfig(
            f"the topic would have {leaves} columns in Parquet, each field of a struct counted; it can have "
            f"{LEAF_COLUMNS_MAX}"
        )
    chars = len(declaration.text)
    if chars > COLUMNS_TEXT_MAX_CHARS:
        raise InvalidConfig(
            f"the topic would have columns of {chars} characters, with those that were left out; it can have "
            f"{COLUMNS_TEXT_MAX_CHARS}, so choose shorter names and paths"
        )


def check_name(name: str) -> None:
    """Raise InvalidConfig for a name that no declared column can have."""
    check_plain_name(name)
    if without_case(name) in RESERVED:
        raise InvalidConfig(
            f"lakelog has a column {without_case(name)!r}; choose another name, such as {name}_"
        )
    if without_case(name).endswith(_SUFFIX):
        raise InvalidConfig(f"the name {name!r} ends as a view does; leave {_SUFFIX} out")


def _check_pointer(column: Column) -> None:
    if not _POINTER.fullmatch(column.pointer):
        raise InvalidConfig(
            f"the path {column.pointer!r} of column {column.name} is no JSON pointer; write /field, or "
            "/field/inner, with ~1 for a slash in a name and ~0 for a tilde"
        )
    if UNSOUGHT.search(column.pointer):
        raise InvalidConfig(
            f"the path {column.pointer!r} of column {column.name} has a quote, a backslash or a control "
            "character; leave this column out"
        )
    if len(column.steps) > VALUE_DEPTH_MAX:
        raise InvalidConfig(
            f"the path of column {column.name} leads {len(column.steps)} deep; a value has declared columns "
            f"up to a depth of {VALUE_DEPTH_MAX}"
        )


def own_pointer(name: str) -> str:
    """The pointer to the field `name` of a value."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
