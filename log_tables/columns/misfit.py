"""The values of many that do not fit a declaration: what `fit` says of each, in a fraction of its
time.

msgspec alone decides of most values that they fit: it decodes them into an object whose fields have the
declared types, within bounds, and the JSON of decimals has the usual form. `fit` reads the values for which
that fails, and says why.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from itertools import repeat
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from log_tables.columns.column_bytes import may_expand
from log_tables.columns.column_type import DECIMAL, looked_up
from log_tables.columns.decimal_text import usual_form
from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.fit import INT64_MAX, INT64_MIN, fit
from log_tables.columns.fit import cut as cut_reason
from log_tables.columns.json_depth import too_deep
from log_tables.columns.record_columns import resolved
from log_tables.layout import HEADERS, VALUE
from log_tables.limits import JUDGED_AT_ONCE_BYTES, JUDGED_NESTED_MAX_BYTES, WIDE_COLUMNS_BYTES
from log_tables.record import Buffer, cut, header_pairs
from log_tables.rows import Records, Rows
from log_tables.schemas.decoded import Encoding, decoded
from log_tables.schemas.framing import Headers
from log_tables.schemas.schema import NO_SCHEMAS, Schemas

_DAY = (
    r"[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"

_TYPES: dict[pa.DataType, Any] = {
    pa.string(): str,
    pa.int64(): Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)],
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): date,
    pa.timestamp("us", tz="UTC"): Annotated[str, msgspec.Meta(pattern=rf"\A{_DAY}[T ]{_CLOCK}{_ZONE}\Z")],
    pa.binary(): bytes,
    DECIMAL: msgspec.Raw,
}
"""A field of this kind fits the type of its column; others may, too."""

_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_PART = "a part of "

Decode = Callable[[bytes], object]
Judge = Callable[[Any], object]
"""Whether the JSON of the decimals in a decoded item is such that it fits: true, or not for sure."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """The `place` of a value that does not fit, and why: the pointer of a column, or "" for the whole value,
    and the reason, as in `value_error`.
    """

    place: int
    path: str
    reason: str


def misfits(records: Records, declaration: Declaration, schemas: Schemas = NO_SCHEMAS) -> Iterator[Misfit]:
    """All of `records` whose values do not fit, in order. One without a value fits."""
    judge = _of_json if declaration.encoding.is_json else _of_any
    for place, (value, headers) in enumerate(_values(records, declaration.encoding)):
        reason = None if value is None else judge(bytes(value), headers, declaration, schemas)
        if reason is not None:
            yield Misfit(place, _path(reason, declaration), reason)


def _of_json(value: bytes, _: Headers, declaration: Declaration, __: Schemas) -> str | None:
    return _reason(value, None if _is_long(value, declaration) else _decoder(declaration), declaration)


def _of_any(value: bytes, headers: Headers, declaration: Declaration, schemas: Schemas) -> str | None:
    found = decoded(value, headers, declaration.encoding, schemas)
    if found.json is None:
        return cut_reason(found.error or "")
    return _of_json(found.json, (), resolved(declaration, found.decoder), schemas)


def _is_long(value: bytes, declaration: Declaration) -> bool:
    """Whether a value may take long to judge at once, and much memory."""
    return _is_nested(declaration) and (
        len(value) > JUDGED_NESTED_MAX_BYTES or may_expand(value, declaration, WIDE_COLUMNS_BYTES)
    )


@lru_cache(maxsize=256)
def _is_nested(declaration: Declaration) -> bool:
    return any(pa.types.is_nested(column.type) for column in declaration.columns)


def _values(records: Records, encoding: Encoding) -> Iterator[tuple[Buffer | None, Headers]]:
    """Each value and its headers, which only values need that are not JSON."""
    if isinstance(records, Rows):
        return zip(records.values, records.headers or repeat(()), strict=False)
    if encoding.is_json:
        parts = cut(records.select([VALUE]), JUDGED_AT_ONCE_BYTES)
        return ((value, ()) for part in parts for value in part.column(0).to_pylist())
    parts = cut(records.select([VALUE, HEADERS]), JUDGED_AT_ONCE_BYTES)
    return (
        pair
        for part in parts
        for pair in zip(part.column(0).to_pylist(), header_pairs(part.column(1)), strict=False)
    )


def _reason(value: bytes, decode: Decode | None, declaration: Declaration) -> str | None:
    """Why `value` does not fit; None if it does."""
    if decode is not None and not too_deep(value):
        try:
            if not value.isascii():
                value.decode()
            decode(value)
            return None
        except _FAILURES:
            pass
    return fit(value, declaration)[1]


def _path(reason: str, declaration: Declaration) -> str:
    """The pointer that `reason` names; "" if it names none, or only a part of a long one."""
    named = reason.removeprefix(_PART)
    pointers = (column.pointer for column in declaration.columns)
    found = (each for each in pointers if named.startswith((f"{each} ", f"{each}/")))
    return max(found, key=len, default="")


@lru_cache(maxsize=256)
def _decoder(declaration: Declaration) -> Decode | None:
    """A decoder that fails for each value that does not fit, and for some that do; None if a field is a
    column and has others in it.
    """
    struct = _struct([(column.steps, column) for column in declaration.columns])
    return None if struct is None else msgspec.json.Decoder(struct).decode


def _struct(columns: Sequence[tuple[Sequence[str], Column]]) -> Any:
    """A struct with a field for the first step of each of `columns`, which follows the steps from here."""
    by_step: dict[str, list[tuple[Sequence[str], Column]]] = {}
    for (step, *rest), column in columns:
        by_step.setdefault(step, []).append((rest, column))
    kinds = {step: _field(inner) for step, inner in by_step.items()}
    return None if None in kinds.values() else _with_fields(kinds)


def _field(columns: Sequence[tuple[Sequence[str], Column]]) -> Any:
    leaves = {column.type for rest, column in columns if not rest}
    if not leaves:
        struct = _struct(columns)
        return None if struct is None else (struct, None)
    return _judged(*leaves) if len(leaves) == 1 and all(not rest for rest, _ in columns) else None


def _judged(kind: pa.DataType) -> tuple[Any, Judge | None]:
    """The type of a field, as msgspec takes it, and what judges the decimals in it, if there are any."""
    return _kind(kind), _judge(kind)


def _judge(kind: pa.DataType) -> Judge | None:
    if pa.types.is_decimal(kind):
        return re.compile(f"{usual_form(kind)}|null".encode()).fullmatch
    if not pa.types.is_list(kind) and not pa.types.is_map(kind):
        return None  # a struct judges itself
    of_item = _judge(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    return None if of_item is None else partial(_all_fit, of_item)


def _all_fit(judge: Judge, items: list[Any] | dict[str, Any] | None) -> bool:
    if items is None:
        return True
    return all(map(judge, items.values() if isinstance(items, dict) else items))


def _kind(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return list[_or_null(_kind(kind.value_type))]  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, _or_null(_kind(kind.item_type))]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _with_fields({each.name: _judged(each.type) for each in kind.fields})
    return _TYPES[looked_up(kind)]


def _or_null(kind: Any) -> Any:
    return kind if kind is msgspec.Raw else kind | None


def _with_fields(fields: dict[str, tuple[Any, Judge | None]]) -> Any:
    """A struct of optional fields, by their names in JSON, which is not made where a judge is in doubt."""
    names = {f"field_{index}": name for index, name in enumerate(fields)}
    kinds = [(slot, _or_null(fields[name][0]), None) for slot, name in names.items()]
    judges = [(slot, judge) for slot, name in names.items() if (judge := fields[name][1]) is not None]

    def check(self: object) -> None:
        for slot, judge in judges:
            item = getattr(self, slot)
            if item is not None and not judge(item):
                raise ValueError

    methods = {"__post_init__": check} if judges else {}
    return msgspec.defstruct("_Fields", kinds, rename=names, gc=False, namespace=methods)
