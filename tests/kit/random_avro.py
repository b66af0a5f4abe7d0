"""Random Avro by the thousand: types, values as fastavro writes them, and the JSON of what it reads."""

import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from log_tables.clock import ManualClock
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.schemas.moments import real

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = date.max.toordinal()
_SCALE = 4


class Draw:
    """Random numbers, bytes and choices, by a seed."""

    def __init__(self, seed: int) -> None:
        self._clock = ManualClock(seed=seed)

    def below(self, end: int) -> int:
        return int(self._clock.random() * end)

    def chance(self, share: float) -> bool:
        return self._clock.random() < share

    def one(self, among: Sequence[Any]) -> Any:
        return among[self.below(len(among))]

    def bits(self, count: int) -> int:
        """A whole number below 2 ** `count`, which is 64 at most."""
        return int(self._clock.random_hex(16), 16) >> (64 - count)

    def bytes(self, count: int) -> bytes:
        return bytes.fromhex(self._clock.random_hex(2 * count)) if count else b""


def _whole(bits: int) -> Callable[[Draw], int]:
    """Whole numbers of any length."""
    return lambda draw: draw.one((1, -1)) * draw.bits(draw.below(bits)) - draw.below(2)


def _text(draw: Draw) -> str:
    end = draw.one((0x80, 0x800, 0xD800, 0x110000))
    codes = (draw.below(end) for _ in range(draw.below(9)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)


def _double(draw: Draw) -> float:
    if draw.chance(0.5):
        return float(draw.one((0.0, -0.0, 1.5, draw.below(10**6) / 7)))
    found: float = struct.unpack("<d", draw.bytes(8))[0]
    return found


def _float(draw: Draw) -> float:
    found: float = struct.unpack("<f", draw.bytes(4))[0]
    return found


def _instant(draw: Draw, unit_us: int = 1) -> datetime:
    first, last = TIMESTAMP_MIN_US // unit_us + 1, TIMESTAMP_MAX_US // unit_us
    return _EPOCH + timedelta(microseconds=(first + draw.below(last - first + 1)) * unit_us)


def _time(draw: Draw, unit_us: int = 1) -> time:
    return (_EPOCH + timedelta(microseconds=draw.below(86_400_000_000 // unit_us) * unit_us)).time()


def _uuid(draw: Draw) -> str:
    found = draw.bytes(16).hex()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"


def _decimal(draw: Draw) -> Decimal:
    return Decimal(_whole(60)(draw)).scaleb(-_SCALE)


LEAVES: list[tuple[Any, Callable[[Draw], Any]]] = [
    ("boolean", lambda draw: draw.chance(0.5)),
    ("int", _whole(31)),
    ("long", _whole(63)),
    ("float", _float),
    ("double", _double),
    ("string", _text),
    ("bytes", lambda draw: draw.bytes(draw.below(9))),
    ({"type": "fixed", "name": "", "size": 3}, lambda draw: draw.bytes(3)),
    ({"type": "enum", "name": "", "symbols": ["A", "B", "C"]}, lambda draw: draw.one("ABC")),
    ({"type": "int", "logicalType": "date"}, lambda draw: date.fromordinal(1 + draw.below(_DAYS))),
    ({"type": "int", "logicalType": "time-millis"}, lambda draw: _time(draw, 1000)),
    ({"type": "long", "logicalType": "time-micros"}, _time),
    ({"type": "long", "logicalType": "timestamp-millis"}, lambda draw: _instant(draw, 1000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, _instant),
    ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": _SCALE}, _decimal),
    ({"type": "string", "logicalType": "uuid"}, _uuid),
]
_SEVERAL = ["string", "null", "boolean", "long"]


class RandomAvro:
    """A type of record, up to three deep, and values of it."""

    def __init__(self, draw: Draw) -> None:
        self._draw, self._names = draw, 0
        self._makers: dict[int, Callable[[Draw], Any]] = {}
        self.type = self._record(draw.one((0, 0, 2)))

    def value(self) -> Any:
        """A value, as fastavro writes it."""
        return self._value(self.type)

    def _kind(self, depth: int) -> Any:
        match self._draw.one("llllnusamr"[: 10 if depth else 7]):
            case "n" | "u" as first:
                return ["null", self._leaf()] if first == "n" else [self._leaf(), "null"]
            case "s":
                return [*_SEVERAL]
            case "a":
                return {"type": "array", "items": self._kind(depth - 1)}
            case "m":
                return {"type": "map", "values": self._kind(depth - 1)}
            case "r":
                return self._record(depth - 1)
        return self._leaf()

    def _record(self, depth: int) -> Any:
        fields = [{"name": f"f{n}", "type": self._kind(depth)} for n in range(1 + self._draw.below(6))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _leaf(self) -> Any:
        kind, make = self._draw.one(LEAVES)
        made = {**kind} if isinstance(kind, dict) else {"type": kind}
        if "name" in made:
            made["name"] = self._name()
        self._makers[id(made)] = make
        return made

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _value(self, kind: Any) -> Any:
        draw = self._draw
        if isinstance(kind, list):
            if kind == _SEVERAL:
                return draw.one((None, draw.chance(0.5), _text(draw), _whole(63)(draw)))
            return None if draw.chance(0.3) else self._value(next(each for each in kind if each != "null"))
        match kind["type"]:
            case "record":
                return {each["name"]: self._value(each["type"]) for each in kind["fields"]}
            case "array":
                return [self._value(kind["items"]) for _ in range(draw.below(4))]
            case "map":
                return {_text(draw): self._value(kind["values"]) for _ in range(draw.below(4))}
        return self._makers[id(kind)](draw)


def shown(kind: Any, value: Any) -> Any:
    """The JSON of `value`, as fastavro has read it."""
    if isinstance(kind, list):
        if value is None or kind != _SEVERAL:
            return value if value is None else shown(next(each for each in kind if each != "null"), value)
        name = "string" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "long"
        return {name: value}
    match kind["type"]:
        case "record":
            return {each["name"]: shown(each["type"], value[each["name"]]) for each in kind["fields"]}
        case "array":
            return [shown(kind["items"], each) for each in value]
        case "map":
            return {key: shown(kind["values"], each) for key, each in value.items()}
    return _shown_leaf(kind, value)


def _shown_leaf(kind: Any, value: Any) -> Any:
    if isinstance(value, datetime | time):
        unit = "milliseconds" if kind["logicalType"].endswith("-millis") else "microseconds"
        text = value.replace(tzinfo=None).isoformat(timespec=unit if value.microsecond else "seconds")
        return f"{text}Z" if isinstance(value, datetime) else text
    form = _FORMS.get(type(value))
    return str(value) if kind.get("logicalType") == "uuid" else value if form is None else form(value)


_FORMS: dict[type, Callable[[Any], Any]] = {
    date: date.isoformat,
    bytes: lambda data: b64encode(data).decode(),
    float: real,
    Decimal: lambda number: f"{number:f}",
}
