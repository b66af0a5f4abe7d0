"""A plain reading of values into declared columns, with the standard library: what docs/columns.md says."""

import base64
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal

import pyarrow as pa

from log_tables.columns.declaration import Declaration
from log_tables.limits import VALUE_DEPTH_MAX

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_MANY_DIGITS = Context(prec=10_000, Emax=999_999, Emin=-999_999)
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class _Whole(str):
    """A number without a fraction, as it is written."""

    __slots__ = ()


class _Fraction(str):
    """Any other number, as it is written."""

    __slots__ = ()


class NoFit(Exception):
    """A value does not fit."""


def plain_fit(value: bytes, declaration: Declaration) -> list[object] | None:
    """The value of each declared column in `value`, by the rules of the documentation; None for a misfit."""
    try:
        whole = _loaded(value)
        return [_fitted(_sought(whole, column.steps), column.type) for column in declaration.columns]
    except (NoFit, ValueError, OverflowError):
        return None


def _loaded(value: bytes) -> object:
    text = value.decode()
    if _depth(text) > VALUE_DEPTH_MAX:
        raise NoFit
    whole = json.loads(
        text, object_pairs_hook=_object, parse_int=_Whole, parse_float=_Fraction, parse_constant=_refused
    )
    _check_texts(whole)
    if not isinstance(whole, dict):
        raise NoFit
    return whole


def _depth(text: str) -> int:
    level = deepest = 0
    inside = escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            inside = not inside
        elif not inside:
            level += (char in "{[") - (char in "}]")
            deepest = max(deepest, level)
    return deepest


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for name, item in pairs:
        _check_texts(name)
        _check_texts(item)
    return dict(pairs)


def _check_texts(item: object) -> None:
    if isinstance(item, str):
        item.encode()  # no half of a surrogate pair
    elif isinstance(item, list):
        for inner in item:
            _check_texts(inner)


def _refused(_: str) -> object:
    raise NoFit


def _sought(item: object, steps: Iterable[str]) -> object:
    for step in steps:
        if isinstance(item, dict):
            item = item.get(step)
        elif isinstance(item, list) and re.fullmatch("0|[1-9][0-9]*", step) and int(step) < len(item):
            item = item[int(step)]
        else:
            return None
    return item


def _fitted(item: object, kind: pa.DataType) -> object:
    if item is None:
        return None
    if pa.types.is_list(kind):
        return [_fitted(inner, kind.value_type) for inner in _of(list, item)]
    if pa.types.is_map(kind):
        return [(name, _fitted(inner, kind.item_type)) for name, inner in _of(dict, item).items()]
    if pa.types.is_struct(kind):
        found = _of(dict, item)
        return {field.name: _fitted(found.get(field.name), field.type) for field in kind.fields}
    return _leaf(item, kind)


def _leaf(item: object, kind: pa.DataType) -> object:
    if pa.types.is_boolean(kind):
        return _of(bool, item)
    if pa.types.is_int64(kind):
        number = int(_of(_Whole, item)) if len(str(item)) < 100 else 2**64
        if not -(2**63) <= number < 2**63:
            raise NoFit
        return number
    if pa.types.is_float64(kind):
        if type(item) not in (_Whole, _Fraction):
            raise NoFit
        double = float(str(item))
        if math.isinf(double):
            raise NoFit
        return 0.0 if item == "-0" else double
    return _decimal(item, kind) if pa.types.is_decimal(kind) else _of_text(_of(str, item), kind)


def _of_text(text: str, kind: pa.DataType) -> object:
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    if pa.types.is_date(kind):
        if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise NoFit
        return date.fromisoformat(text)
    return _time(text) if pa.types.is_timestamp(kind) else text


def _decimal(item: object, kind: pa.DataType) -> Decimal:
    if not isinstance(item, str) or not _NUMBER.fullmatch(item):
        raise NoFit
    number, unit = Decimal(item), Decimal(1).scaleb(-kind.scale)
    if not number:
        return Decimal(0)
    if not -100 < number.adjusted() < kind.precision - kind.scale:
        raise NoFit
    found = number.quantize(unit, context=_MANY_DIGITS)
    if found != number:
        raise NoFit
    return found


def _of(kind: type, item: object):  # type: ignore[no-untyped-def]
    if type(item) is not kind:
        raise NoFit
    return item


def _time(text: str) -> datetime:
    match = re.fullmatch(
        r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
        r"(?:[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:?(?:[0-9]{2})?)?)?",
        text,
    )
    if match is None or (match[4] and not match[3]):
        raise NoFit
    day, minute, second, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "z", "Z") else zone.replace(":", "").ljust(5, "0")
    if int(zone[1:3]) > 18:
        raise NoFit
    micros = (fraction or ".").ljust(7, "0")[:7]
    found = datetime.fromisoformat(f"{day}T{minute or '00:00'}{second or ':00'}{micros}{zone}").astimezone(
        UTC
    )
    if found > _LAST:
        raise NoFit
    return found
