"""How much memory the arrays and maps of a value take as columns: each item has all fields of its struct.

It is a function of the value and of the declaration. `may_expand` bounds it before anything is read.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from log_tables.columns.declaration import Declaration
from log_tables.limits import EXPANDED_MAX_BYTES, WIDE_COLUMNS_BYTES

Counter = Callable[[Any], int]

_SLOT_BYTES = 8
"""Of a number, of the ends of a text, an array or a map."""

_DECIMAL_BYTES = 16


def expanded_bytes(items: Iterable[tuple[int, Any]], declaration: Declaration) -> int:
    """The bytes of all items of arrays and maps in what a value has in columns: `items`, by their indexes."""
    counters = _counters(declaration)
    return sum(counters[index](item) for index, item in items if item is not None)


@lru_cache(maxsize=256)
def _counters(declaration: Declaration) -> list[Counter]:
    return [_counter(column.type) or _nothing for column in declaration.columns]


def _nothing(_: object) -> int:
    return 0


def _counter(kind: pa.DataType) -> Counter | None:
    """A function from what a value has in a field to the bytes of all items in it; None if there are none."""
    if not pa.types.is_nested(kind):
        return None
    if pa.types.is_struct(kind):
        found = {each.name: _counter(each.type) for each in kind.fields}
        inside = {name: count for name, count in found.items() if count is not None}
        return partial(_in_struct, inside) if inside else None
    inner = _counter(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    return partial(_in_items, item_bytes(kind), inner, pa.types.is_map(kind))


def _in_struct(inside: dict[str, Counter], item: dict[str, Any]) -> int:
    return sum(count(item[name]) for name, count in inside.items() if item.get(name) is not None)


def _in_items(size: int, inner: Counter | None, of_map: bool, items: Any) -> int:
    own = len(items) * size
    if inner is None:
        return own
    if of_map:
        items = items.values() if isinstance(items, dict) else (item for _, item in items)
    return own + sum(inner(item) for item in items if item is not None)


def may_expand(value: bytes, declaration: Declaration, most: int = EXPANDED_MAX_BYTES) -> bool:
    """Whether the columns of `value` may have more than `most` bytes of items."""
    widest = widest_items(declaration)
    if len(value) // 2 * widest <= most:  # an item and what comes after it
        return False
    return (value.count(b",") + value.count(b"[") + value.count(b"{")) * widest > most


def may_be_wide(values: pa.Array, declaration: Declaration) -> bool:
    """Whether the columns of binary `values` together may have more than WIDE_COLUMNS_BYTES of items."""
    widest = widest_items(declaration)
    if widest == 0:
        return False
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    if len(data) // 2 * widest <= WIDE_COLUMNS_BYTES:
        return False
    items = sum(np.count_nonzero(data == ord(mark)) for mark in ",[{")
    return bool(items * widest > WIDE_COLUMNS_BYTES)


@lru_cache(maxsize=256)
def widest_items(declaration: Declaration) -> int:
    """The bytes of an item in each column, of the widest if there are several. 0 without arrays and maps."""
    return sum(_widest(column.type) for column in declaration.columns)


def _widest(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 0
    inner = max(_widest(kind.field(index).type) for index in range(kind.num_fields))
    return inner if pa.types.is_struct(kind) else max(item_bytes(kind), inner)


def item_bytes(kind: pa.DataType) -> int:
    """The bytes of an item of an array or a map."""
    if pa.types.is_list(kind):
        return _bytes(kind.value_type)
    return _SLOT_BYTES + _bytes(kind.item_type)


def _bytes(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_bytes(kind.field(index).type) for index in range(kind.num_fields))
    return _DECIMAL_BYTES if pa.types.is_decimal(kind) else _SLOT_BYTES
