"""A declaration that fits a sample of values: each field gets the type that all of its values have.

A field whose values have several kinds, or nothing but nulls, gets no column: it stays in `value`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count

import msgspec
import pyarrow as pa

from log_tables.columns.column_type import array_of, leaf, struct_of, without_case
from log_tables.columns.declaration import (
    Column,
    Declaration,
    check_count,
    check_name,
    own_pointer,
    parse,
)
from log_tables.columns.fit import INT64_MAX, INT64_MIN, fit
from log_tables.columns.time_text import date_days, time_us
from log_tables.errors import InvalidConfig
from log_tables.limits import COLUMN_NAME_MAX_CHARS, COLUMNS_MAX, NESTED_TYPES_MAX

_FORBIDDEN = re.compile(r"[^\w.\-/]")
_KINDS: Mapping[type, str] = {bool: "boolean", int: "bigint", float: "double", str: "string"}
_NUMBERS = frozenset(("bigint", "double"))
_TEXTS = frozenset(("date", "timestamp", "string"))


def inferred(values: Iterable[bytes | None], declared: Declaration) -> Declaration:
    """`declared`, and a column for each other field of the JSON objects among `values`.

    Each of these objects that fits `declared` fits the result, too. There are at most COLUMNS_MAX columns.
    """
    seen = _Seen()
    for value in values:
        if value is None or (declared.columns and fit(value, declared)[1] is not None):
            continue
        try:
            found = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(found, dict):
            seen.add(found)
    known = {column.steps for column in declared.columns}
    columns = [*declared.columns]
    for name, inner in seen.fields.items():
        kind, pointer = inner.type(0), own_pointer(name)
        if kind is not None and (name,) not in known and len(columns) < COLUMNS_MAX:
            column = Column(free_name(name, columns), kind, pointer)
            if can_be_declared(column, columns):
                columns.append(column)
    return Declaration(tuple(columns))


@dataclass(slots=True)
class _Seen:
    """The kinds that a place in the values has had, and what is inside of it."""

    kinds: set[str] = field(default_factory=set)
    fields: "dict[str, _Seen]" = field(default_factory=dict)
    element: "_Seen | None" = None

    def add(self, value: object) -> None:
        if value is None:
            return
        self.kinds.add(_kind(value))
        if isinstance(value, dict):
            for name, inner in value.items():
                self.fields.setdefault(name, _Seen()).add(inner)
        elif isinstance(value, list):
            self.element = self.element or _Seen()
            for inner in value:
                self.element.add(inner)

    def type(self, depth: int) -> pa.DataType | None:
        """The type that all values here have; None without one."""
        if depth > NESTED_TYPES_MAX:
            return None
        if self.kinds == {"object"}:
            inner = {name: seen.type(depth + 1) for name, seen in self.fields.items()}
            fields = {name: kind for name, kind in inner.items() if kind is not None and is_plain(name)}
            alike = {without_case(name) for name in fields}
            return struct_of(fields) if fields and len(alike) == len(fields) else None
        if self.kinds == {"array"}:
            element = None if self.element is None else self.element.type(depth + 1)
            return None if element is None else array_of(element)
        if len(self.kinds) == 1 and not self.kinds & {"object", "array", "none"}:
            return leaf(*self.kinds)
        if self.kinds and self.kinds <= _NUMBERS:
            return leaf("double")
        return leaf("string") if self.kinds and self.kinds <= _TEXTS else None


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "date" if date_days(value) is not None else "string" if time_us(value) is None else "timestamp"
    if isinstance(value, int) and not isinstance(value, bool) and not INT64_MIN <= value <= INT64_MAX:
        return "double"
    return _KINDS[type(value)]


def is_plain(name: str) -> bool:
    """Whether a field of a struct can have this name."""
    return 1 <= len(name) <= COLUMN_NAME_MAX_CHARS and _FORBIDDEN.search(name) is None


def can_be_declared(column: Column, before: Iterable[Column]) -> bool:
    text = Declaration((column,)).text
    try:
        check_count(Declaration((*before, column)))
        return parse(text).columns == (column,)
    except InvalidConfig:
        return False


def free_name(name: str, columns: Iterable[Column]) -> str:
    """`name`, or one like it that a column can have and no other of `columns` has."""
    plain = _FORBIDDEN.sub("_", name)[: COLUMN_NAME_MAX_CHARS - 4] or "field"
    taken = {without_case(column.name) for column in columns}
    endings = chain(("", "_"), (f"_{number}" for number in count(2)))
    return next(f"{plain}{end}" for end in endings if _is_free(f"{plain}{end}", taken))


def _is_free(name: str, taken: Collection[str]) -> bool:
    try:
        check_name(name)
    except InvalidConfig:
        return False
    return without_case(name) not in taken
