"""Decoded items of many values as an Arrow array of a declared type, and which of them are beyond it."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.columns.column_type import array_of, leaf, map_of, struct_of
from log_tables.columns.decimal_text import decimal_of, usual_form
from log_tables.columns.time_text import date_days, time_us
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Made = tuple[pa.Array, Sequence[int]]
"""An array, and the rows of those that it has not as they are, and which are left to `fit`."""

_DATE_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_ZONE = "(Z|[+-](0[0-9]|1[0-8]):?[0-5][0-9])"
_DATES, _TIMES, _ZONED_TIMES = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", f"^{_DATE_TIME}$", f"^{_DATE_TIME}{_ZONE}$"


def exact(items: Sequence[object], kind: pa.DataType) -> Made:
    """Decoded items, of which numbers may be beyond `kind`, and texts in it no dates or times.

    Decimals are decoded to their JSON (msgspec.Raw).
    """
    texts = _raw_texts(kind)
    return _exact(items if texts is None else [None if item is None else texts(item) for item in items], kind)


@lru_cache(maxsize=1024)
def _raw_texts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that gives a decoded item with bytes for the JSON in it; None if there is none."""
    if pa.types.is_decimal(kind):
        return bytes
    if not pa.types.is_nested(kind):
        return None
    if pa.types.is_struct(kind):
        found = {each.name: _raw_texts(each.type) for each in kind.fields}
        inner = {name: texts for name, texts in found.items() if texts is not None}
        return partial(_in_struct, inner) if inner else None
    item = _raw_texts(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    return None if item is None else partial(_in_map if pa.types.is_map(kind) else _in_list, item)


def _in_struct(inner: dict[str, Callable[[Any], Any]], item: dict[str, Any] | None) -> dict[str, Any] | None:
    return item and {name: inner[name](each) if name in inner else each for name, each in item.items()}


def _in_map(texts: Callable[[Any], Any], item: dict[str, Any] | None) -> dict[str, Any] | None:
    return item and {name: texts(each) for name, each in item.items()}


def _in_list(texts: Callable[[Any], Any], item: list[Any] | None) -> list[Any] | None:
    return item and [*map(texts, item)]


def _exact(items: Sequence[object], kind: pa.DataType) -> Made:
    try:
        array = pa.array(items, _with_texts(kind))
    except (OverflowError, pa.ArrowException):
        if len(items) == 1:
            return pa.nulls(1, kind), (0,)
    else:
        return _parsed(array, kind)
    half = len(items) // 2
    (first, odd), (second, others) = _exact(items[:half], kind), _exact(items[half:], kind)
    return pa.concat_arrays([first, second]), [*odd, *(half + row for row in others)]


def _with_texts(kind: pa.DataType) -> pa.DataType:
    """`kind`, with texts where it has dates and times, and bytes where it has decimals."""
    if pa.types.is_list(kind):
        return array_of(_with_texts(kind.value_type))
    if pa.types.is_map(kind):
        return map_of(_with_texts(kind.item_type))
    if pa.types.is_struct(kind):
        return struct_of({each.name: _with_texts(each.type) for each in kind.fields})
    if pa.types.is_decimal(kind):
        return pa.binary()
    return pa.string() if pa.types.is_temporal(kind) else kind


def _parsed(array: pa.Array, kind: pa.DataType) -> Made:
    """`array`, of the type `_with_texts(kind)`, as `kind`; and the rows in which a text is no time or no
    decimal.
    """
    if array.type == kind:
        return array, ()
    if pa.types.is_temporal(kind):
        return times(array, kind)
    if pa.types.is_decimal(kind):
        return _decimals(array, kind)
    nulls = array.is_null()
    if pa.types.is_list(kind):
        values, odd = _parsed(array.values, kind.value_type)
        made = pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=nulls)
        return made, _rows_of(odd, array.offsets)
    if pa.types.is_map(kind):
        items, odd = _parsed(array.items, kind.item_type)
        made = pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=nulls)
        return made, _rows_of(odd, array.offsets)
    fields = zip(array.flatten(), kind.fields, strict=True)  # in `field` there are texts where a null is
    parts = [_parsed(part, each.type) for part, each in fields]
    made = pa.StructArray.from_arrays([part for part, _ in parts], fields=kind.fields, mask=nulls)
    return made, sorted({row for _, odd in parts for row in odd})


def _rows_of(items: Sequence[int], offsets: pa.Array) -> Sequence[int]:
    """The rows that have these items: those of row r are from offsets[r] to offsets[r + 1]."""
    if not items:
        return ()
    return np.unique(np.searchsorted(offsets.to_numpy(), items, "right") - 1).tolist()  # type: ignore[no-any-return]


def times(texts: pa.Array, kind: pa.DataType) -> Made:
    """Texts as dates or times. Those of the usual form are read at once, others one by one."""
    form = _DATES if pa.types.is_date(kind) else _form(texts)
    usual = pc.match_substring_regex(texts, form)
    found = _read(pc.if_else(usual, texts, None) if usual.false_count else texts, form, kind)
    if found is not None and not usual.false_count:
        return found, ()
    left = usual.is_valid() if found is None else pc.equal(usual, False).fill_null(False)
    before = pa.nulls(len(texts), kind) if found is None else found
    return _mended(before, texts, left, date_days if pa.types.is_date(kind) else time_us)


def _mended(
    found: pa.Array, texts: pa.Array, left: pa.BooleanArray, read: Callable[[str], int | Decimal | None]
) -> Made:
    """`found`, with what `read` makes of the texts that are `left`, one by one; and the rows of its None."""
    rows = np.flatnonzero(left)
    items = [read(text) for text in texts.take(pa.array(rows)).to_pylist()]
    mended = pc.replace_with_mask(found, left, pa.array(items, found.type))
    return mended, [row for row, item in zip(rows.tolist(), items, strict=True) if item is None]


def _decimals(written: pa.Array, kind: pa.DataType) -> Made:
    """JSON, in bytes, as decimals. That of the usual form is read at once, the rest one by one."""
    texts = written.cast(pa.string())
    usual = pc.match_substring_regex(texts, f"^{usual_form(kind)}$")
    known = texts if not usual.false_count else pc.if_else(usual, texts, None)
    found = pc.utf8_trim(known, '"').cast(kind)
    left = pc.and_(pc.invert(usual), pc.not_equal(texts, "null")).fill_null(False)
    return _mended(found, texts, left, partial(_decimal, kind)) if left.true_count else (found, ())


def _decimal(kind: pa.DataType, text: str) -> Decimal | None:
    found = decimal_of(text.strip('"'), kind)
    return None if isinstance(found, str) else found


def _read(texts: pa.Array, form: str, kind: pa.DataType) -> pa.Array | None:
    """The dates or times `texts`, all of this form; None if one of them is none."""
    try:
        found = texts.cast(kind) if form != _TIMES else texts.cast(pa.timestamp("us")).cast(kind)
    except pa.ArrowInvalid:
        return None
    return found if _in_years(found) else None


def _form(texts: pa.Array) -> str:
    """The form of the first text that is not null: with a zone, or without one."""
    first = next((text.as_py() for text in texts if text.is_valid), "")
    return _TIMES if re.match(_TIMES, first) else _ZONED_TIMES


def with_times(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Arrays of one type as arrays of one type: texts become dates, or times, where all of them are such.

    The texts of a field that are one and the other stay texts, as in a declaration that `inferred` makes.
    """
    kind = arrays[0].type if arrays else pa.null()
    if pa.types.is_string(kind):
        return _timed_texts(arrays)
    if pa.types.is_list(kind):
        values = with_times([array.values for array in arrays])
        whole = pa.list_(kind.value_field.with_type(values[0].type))
        return [
            pa.ListArray.from_arrays(array.offsets, part, type=whole, mask=array.is_null())
            for array, part in zip(arrays, values, strict=True)
        ]
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return arrays
    columns = [with_times([array.field(index) for array in arrays]) for index in range(kind.num_fields)]
    fields = [each.with_type(column[0].type) for each, column in zip(kind.fields, columns, strict=True)]
    return [
        pa.StructArray.from_arrays([*parts], fields=fields, mask=array.is_null())
        for array, *parts in zip(arrays, *columns, strict=True)
    ]


def _timed_texts(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    first = next((text.as_py() for array in arrays for text in array if text.is_valid), "")
    kind = leaf("timestamp" if date_days(first) is None else "date")
    if pa.types.is_timestamp(kind) and time_us(first) is None:
        return arrays
    found = []
    for array in arrays:
        if pa.types.is_timestamp(kind) and pc.any(pc.match_substring_regex(array, _DATES)).as_py():
            return arrays
        made, odd = times(array, kind)
        if odd:
            return arrays
        found.append(made)
    return found


def _in_years(found: pa.Array) -> bool:
    bounds = pc.min_max(found.cast(pa.timestamp("us")).cast(pa.int64()))
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (least >= TIMESTAMP_MIN_US and greatest <= TIMESTAMP_MAX_US)
