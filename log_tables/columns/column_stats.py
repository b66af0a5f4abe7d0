"""The Delta stats of declared columns in a file: least and greatest values, and how many nulls.

They only ever leave out files: a bound may be wider than the values, and is left out where it would be long.
"""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.limits import STATS_COLUMNS_MAX, STATS_MAX_BYTES, STATS_TEXT_CHARS
from log_tables.record import timestamp_text

Bound = str | int | float | bool | msgspec.Raw
"""A number that no double has as it is written is its JSON."""

_DIGITS = Context(prec=50)
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class ColumnStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bounds of columns and their nulls, by name. Dates and times are texts, as in Delta's stats, and
    decimals numbers.

    A time is in milliseconds, the least rounded down and the greatest up. A text has at most
    STATS_TEXT_CHARS, and the greatest is at least the greatest of the column. A decimal is exact and has no
    exponent, as delta-rs reads none: then it takes the bound for null, and leaves the file out.
    """

    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}


NO_STATS = ColumnStats()


def exact(number: str) -> Bound:
    """A fraction of JSON as a bound: what is written again as it was."""
    double = float(number)
    return double if msgspec.json.encode(double) == number.encode() else msgspec.Raw(number.encode())


_bounds = msgspec.json.Decoder(float_hook=exact)


def number_of(bound: Bound) -> Decimal:
    """A bound that is a number."""
    return Decimal(msgspec.json.encode(bound).decode())


class ColumnStatsWriter:
    """Gathers the stats of the declared columns of a file, batch by batch."""

    def __init__(self) -> None:
        self._bounds: dict[str, tuple[pa.Scalar, pa.Scalar]] = {}
        self._nulls: dict[str, int] = {}
        self._unbound: set[str] = set()

    def add(self, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        """Count the next rows, of which the columns `names` are declared ones, after VALUE_ERROR."""
        leaves = [name for name in names if not pa.types.is_nested(batch.schema.field(name).type)]
        for name in leaves[: STATS_COLUMNS_MAX + 1]:
            column = batch.column(name)
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if not _has_bounds(column):
                self._unbound.add(name)
            elif column.null_count < len(column):
                self._widen(name, column)

    def _widen(self, name: str, column: pa.Array) -> None:
        found = pc.min_max(column)
        least, greatest = found["min"], found["max"]
        if name in self._bounds:
            low, high = self._bounds[name]
            least = low if pc.less_equal(low, least).as_py() else least
            greatest = high if pc.greater_equal(high, greatest).as_py() else greatest
        self._bounds[name] = least, greatest

    def stats(self) -> ColumnStats:
        """The stats of all rows, of as many of the first columns as STATS_MAX_BYTES hold."""
        bounds = {name: found for name, found in self._bounds.items() if name not in self._unbound}
        least = {name: _least(low) for name, (low, _) in bounds.items()}
        greatest = {name: _greatest(high) for name, (_, high) in bounds.items()}
        return _bounded(
            {name: bound for name, bound in least.items() if bound is not None},
            {name: bound for name, bound in greatest.items() if bound is not None},
            self._nulls,
        )


def _has_bounds(column: pa.Array) -> bool:
    """Whether readers agree on the order of its values, and JSON has them: bytes, NaN and infinities not."""
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.is_finite(column), min_count=0).as_py())
    return not pa.types.is_binary(column.type)


def _bounded(
    least: Mapping[str, Bound], greatest: Mapping[str, Bound], nulls: Mapping[str, int]
) -> ColumnStats:
    names, size = [], 0
    for name in nulls:
        size += sum(len(msgspec.json.encode({name: part.get(name)})) for part in (least, greatest, nulls))
        if size > STATS_MAX_BYTES:
            break
        names.append(name)
    return ColumnStats(
        {name: least[name] for name in names if name in least},
        {name: greatest[name] for name in names if name in greatest},
        {name: nulls[name] for name in names},
    )


def _least(value: pa.Scalar) -> Bound | None:
    if pa.types.is_temporal(value.type):
        return _time_text(value)
    if pa.types.is_decimal(value.type):
        return _number(value)
    found: Bound = value.as_py()
    if isinstance(found, float):
        return found or -0.0  # some readers sort it before 0.0, and Arrow finds either
    return found[:STATS_TEXT_CHARS] if isinstance(found, str) else found


def _greatest(value: pa.Scalar) -> Bound | None:
    if pa.types.is_temporal(value.type):
        return _time_text(value, up=True)
    if pa.types.is_decimal(value.type):
        return _number(value)
    found: Bound = value.as_py()
    if isinstance(found, float):
        return found or 0.0
    return _not_less(found) if isinstance(found, str) else found


def _not_less(text: str) -> str | None:
    """A short text that is not less than `text`; None if there is none."""
    if len(text) <= STATS_TEXT_CHARS:
        return text
    kept = text[:STATS_TEXT_CHARS]
    while kept:
        following = ord(kept[-1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST:
            return kept[:-1] + chr(following)
        kept = kept[:-1]
    return None


def _number(value: pa.Scalar) -> Bound:
    """A decimal without zeros at its end."""
    bound: Bound = _bounds.decode(f"{value.as_py().normalize(_DIGITS):f}")
    return bound


def _time_text(value: pa.Scalar, up: bool = False) -> str:
    if pa.types.is_date(value.type):
        return str(value.as_py().isoformat())
    return timestamp_text(value.value, up)
