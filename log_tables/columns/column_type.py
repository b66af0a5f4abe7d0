"""The types of declared columns, by their names in Spark's DDL, as Arrow has them and as Delta writes them.

A type is an Arrow type that one of the functions here made: nested ones have Delta's names for their parts.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from log_tables.errors import InvalidConfig

_LEAVES: Mapping[str, tuple[pa.DataType, str]] = MappingProxyType(
    {
        "string": (pa.string(), "string"),
        "bigint": (pa.int64(), "long"),
        "double": (pa.float64(), "double"),
        "boolean": (pa.bool_(), "boolean"),
        "date": (pa.date32(), "date"),
        "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
        "binary": (pa.binary(), "binary"),
    }
)
"""The types without parts, but for decimals: (Arrow's, Delta's name)."""

DECIMALS = ("decimal", "dec", "numeric")
DECIMAL = pa.decimal128(10, 0)
"""A decimal whose digits are not given, in Spark. It stands for all of them where types are looked up."""

_SAME = {"long": "bigint"}
_NARROW = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), "bigint"),
    **dict.fromkeys(("float", "real"), "double"),
}
_DOT_ABOVE = "\u0307"
_WORD = re.compile(r"[^\s,;:<>(){}'\"`=]+")
_DDL_OF = {kind: name for name, (kind, _) in _LEAVES.items()}
_DELTA_OF = dict(_LEAVES.values())
_OF_DELTA = {delta: kind for kind, delta in _LEAVES.values()}
_DELTA_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_DIGITS = re.compile(r"[0-9]{1,9}")
_DECIMAL_MAX_DIGITS = 38


def leaf(name: str) -> pa.DataType:
    """The type without parts of this name in Spark's DDL. Raises InvalidConfig."""
    name = name.lower()
    if name in _NARROW:
        raise InvalidConfig(
            f"the type {name} cannot grow later, as tables of this protocol have no type widening; declare "
            f"{_NARROW[name]}"
        )
    known = _LEAVES.get(_SAME.get(name, name))
    if known is None:
        raise InvalidConfig(
            f"there is no type {name!r} for a declared column; use one of {', '.join(_LEAVES)}, "
            "decimal(p, s), array<…>, map<string, …> and struct<name: …, …>"
        )
    return known[0]


def decimal_type(parameters: Sequence[str]) -> pa.DataType:
    """The decimal with these numbers of digits in Spark's DDL: of all, and of those after the point."""
    if not parameters:
        return DECIMAL
    if len(parameters) <= 2 and all(map(_DIGITS.fullmatch, parameters)):
        digits, scale = int(parameters[0]), int((*parameters, "0")[1])
        if scale <= digits and 1 <= digits <= _DECIMAL_MAX_DIGITS:
            return pa.decimal128(digits, scale)
    raise InvalidConfig(
        f"there is no type decimal({', '.join(parameters)}); write decimal(p, s) with 1 to "
        f"{_DECIMAL_MAX_DIGITS} digits p, of which 0 to p, s, are after the point"
    )


def looked_up(kind: pa.DataType) -> pa.DataType:
    """`kind` as maps of types have it: one decimal for all."""
    return DECIMAL if pa.types.is_decimal(kind) else kind


def array_of(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def map_of(value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), value)


def struct_of(fields: Mapping[str, pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


def ddl(kind: pa.DataType) -> str:
    """`kind` in Spark's DDL."""
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string, {ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(field.name)}: {ddl(field.type)}' for field in _fields(kind))}>"
    return _decimal_text(kind) or _DDL_OF[kind]


def _decimal_text(kind: pa.DataType) -> str | None:
    """A decimal as Spark's DDL and Delta have it; None for another type."""
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else None


def quoted(name: str) -> str:
    """`name` as a declaration spells it: between backticks where it is not a plain word."""
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def without_case(name: str) -> str:
    """`name` as names are compared: those that Java, Spark or Python take for one are equal here.

    Java's `equalsIgnoreCase` compares upper cases, and then their lower cases: `ı` is `I` to it, `ſ` is `S`,
    the sign of Kelvin is `k`, and `İ` is `i`, which has a dot more in Python.
    """
    return name.upper().casefold().replace(_DOT_ABOVE, "")


def leaf_count(kind: pa.DataType) -> int:
    """The number of columns of Parquet that hold `kind`."""
    if not is_nested(kind):
        return 1
    return sum(leaf_count(kind.field(index).type) for index in range(kind.num_fields))


def delta_type(kind: pa.DataType) -> object:
    """`kind` as the `type` of a field in a Delta table's `schemaString`."""
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": delta_type(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        value = delta_type(kind.item_type)
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [delta_field(field.name, field.type) for field in _fields(kind)]}
    return _decimal_text(kind) or _DELTA_OF[kind]


def delta_field(
    name: str, kind: pa.DataType, metadata: Mapping[str, object] = MappingProxyType({})
) -> dict[str, object]:
    """A field of a Delta table's `schemaString` that may be null."""
    return {"name": name, "type": delta_type(kind), "nullable": True, "metadata": dict(metadata)}


def of_delta(kind: object) -> pa.DataType:
    """The type that `delta_type` wrote. Raises KeyError, TypeError, InvalidConfig for any other."""
    if isinstance(kind, str):
        match = _DELTA_DECIMAL.fullmatch(kind)
        return _OF_DELTA[kind] if match is None else decimal_type(match.groups())
    if not isinstance(kind, dict):
        raise TypeError(f"{kind!r} is no type")
    if kind["type"] == "array":
        return array_of(of_delta(kind["elementType"]))
    if kind["type"] == "map":
        return map_of(of_delta(kind["valueType"]))
    return struct_of({field["name"]: of_delta(field["type"]) for field in kind["fields"]})


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]
