"""Avro: a value as bytes, of the JSON that stands for it.

The JSON is that which `avro` makes, or Avro's own encoding in JSON, as Kafka's REST proxies take it: there
bytes are a text of characters up to U+00FF, a union names its type also next to null, and what has a logical
type is what its plain type is. fastavro writes the bytes.
"""

import io
from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import fastavro

from log_tables.schemas.avro import Type, branch_names, parsed
from log_tables.schemas.moments import days_of, instant_of, time_of
from log_tables.schemas.schema import Schema, Unencodable

_DIGITS = {"millis": 3, "micros": 6, "nanos": 9}
_FLOATS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def from_json(schema: Schema, of_avro: bool = False) -> Callable[[object], bytes]:
    """A function from decoded JSON to the value that it stands for, without the id of the schema.

    The JSON is that of `avro`, or `of_avro`, Avro's own.

    It raises Unencodable. Raises InvalidSchema for a schema that is none.
    """
    named: dict[str, Any] = {}
    whole = parsed(schema, named)
    writer = _Writer(named, of_avro)

    def encode(value: object) -> bytes:
        sink = io.BytesIO()
        try:
            fastavro.schemaless_writer(sink, whole, writer.datum(value, whole))
        except RecursionError:
            raise Unencodable("is nested too deep") from None
        except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
            raise Unencodable(f"is no value of its schema ({error!s:.120})") from None
        return sink.getvalue()

    return encode


class _Writer:
    """Makes what fastavro writes of decoded JSON, or of JSON `of_avro`. `named` are the types with names."""

    def __init__(self, named: Mapping[str, Any], of_avro: bool) -> None:
        self._named = named
        self._bytes = _characters if of_avro else _base64
        self._of_avro = of_avro

    def datum(self, value: Any, kind: Type) -> Any:
        """`value` as fastavro takes it for a type. Raises Unencodable."""
        if isinstance(kind, list):
            return self._of_union(value, kind)
        if isinstance(kind, str):
            return self._plain(value, kind) if kind in _PLAIN else self.datum(value, self._named[kind])
        return self._of(value, kind["type"], kind)

    def _of(self, value: Any, name: Type, kind: dict[str, Any]) -> Any:
        """`value` for a type of this name."""
        match name:
            case "record" | "error":
                return self._of_record(value, kind)
            case "array":
                return [self.datum(item, kind["items"]) for item in _checked(value, list, "array")]
            case "map":
                items = _checked(value, dict, "map").items()
                return {key: self._inside(item, kind["values"], key) for key, item in items}
            case "enum":
                return value
            case str():
                return self._logical(value, name, kind)
        return self.datum(value, name)

    def _inside(self, value: Any, kind: Type, name: str) -> Any:
        try:
            return self.datum(value, kind)
        except Unencodable as error:
            raise Unencodable(error.reason, (name, *error.path)) from None

    def _of_record(self, value: Any, kind: dict[str, Any]) -> dict[str, Any]:
        given = _checked(value, dict, "object")
        names = {each["name"] for each in kind["fields"]}
        unknown = next((name for name in given if name not in names), None)
        if unknown is not None:
            raise Unencodable("is no field of the schema", (unknown,))
        missing = [each for each in kind["fields"] if each["name"] not in given and "default" not in each]
        for each in missing:
            if not isinstance(each["type"], list) or "null" not in each["type"]:
                raise Unencodable("is missing", (each["name"],))
        return {
            each["name"]: self._inside(given.get(each["name"]), each["type"], each["name"])
            for each in kind["fields"]
            if each["name"] in given
        }

    def _of_union(self, value: Any, kinds: list[Type]) -> Any:
        names = branch_names(kinds)
        if value is None:
            if None not in names:
                raise Unencodable("is null, and no type of its union")
            return None
        full = _full_names(kinds)
        if isinstance(value, dict) and len(value) == 1:
            [(name, inner)] = value.items()
            for index, kind in enumerate(kinds):
                if name is not None and name in (names[index], full[index]):
                    return (full[index], self._inside(inner, kind, name))
        others = [index for index, name in enumerate(names) if name is not None]
        if len(others) != 1:
            known = ", ".join(str(names[index]) for index in others)
            raise Unencodable(f"is a union of several types; write an object with the name of one: {known}")
        [index] = others
        return (full[index], self.datum(value, kinds[index]))

    def _plain(self, value: Any, name: str) -> Any:
        """The value of a type without parts."""
        kinds, what = _PLAIN[name]
        if name in ("float", "double") and isinstance(value, str) and value in _FLOATS:
            return float(_FLOATS[value])
        if not isinstance(value, kinds) or (isinstance(value, bool) and name != "boolean"):
            raise Unencodable(f"is no {what}")
        if name == "bytes":
            return self._bytes(str(value))
        if name == "int" and isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise Unencodable("is no whole number of 32 bits")
        return value

    def _logical(self, value: Any, name: str, kind: dict[str, Any]) -> Any:
        """The value of a type without parts that may stand for something else."""
        logical, _, unit = str(kind.get("logicalType", "")).rpartition("-")
        logical = logical or unit
        if logical == "decimal" and name in ("bytes", "fixed") and not self._of_avro:
            return _decimal(value)
        if name == "fixed":
            return self._bytes(_checked(value, str, "text"))
        if isinstance(value, str) and name in ("int", "long"):
            found = _moment(value, logical, _DIGITS.get(unit, 0))
            if found is None:
                raise Unencodable(f"is no {logical or 'whole number'}")
            return found
        return self._plain(value, name)


def _full_names(kinds: list[Type]) -> list[str]:
    """The name by which fastavro knows each type of a union."""
    return [kind if isinstance(kind, str) else _full_name(kind) for kind in kinds]


def _full_name(kind: Any) -> str:
    return str(kind.get("name") or kind["type"])


def _checked(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise Unencodable(f"is no {what}")
    return value


_PLAIN: dict[str, tuple[type | tuple[type, ...], str]] = {
    "null": (type(None), "null"),
    "boolean": (bool, "boolean"),
    "int": (int, "whole number"),
    "long": (int, "whole number"),
    "float": ((int, float), "number"),
    "double": ((int, float), "number"),
    "string": (str, "text"),
    "bytes": (str, "text"),
}


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise Unencodable("is no text in base64") from None


def _characters(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise Unencodable("is text with characters beyond U+00FF") from None


def _moment(text: str, logical: str, digits: int) -> int | None:
    """The number of a date or a time; None for another text."""
    if logical == "date":
        return days_of(text)
    if logical == "time":
        return time_of(text, digits)
    return instant_of(text, digits) if logical in ("timestamp", "local-timestamp") else None


def _decimal(value: Any) -> Any:
    try:
        return Decimal(value if isinstance(value, str) else repr(value))
    except (InvalidOperation, TypeError):
        raise Unencodable("is no decimal") from None
