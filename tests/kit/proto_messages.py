"""Random messages of Protobuf of any type, and the JSON that they should have, made of Protobuf's own."""

import json
import struct
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.schema import Schema

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_FLOAT = st.floats(width=32)
_BITS = {3: 64, 16: 64, 18: 64, 5: 32, 15: 32, 17: 32}
_UNSIGNED_BITS = {4: 64, 6: 64, 13: 32, 7: 32}
_DOUBLE, _FLOAT_TYPE, _BOOL, _STRING, _BYTES = 1, 2, 8, 9, 12
_PLAIN = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_TIME, _DURATION, _MASK = (f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask"))


@st.composite
def messages(draw: st.DrawFn, schema: Schema, indexes: tuple[int, ...] = (0,)) -> Any:
    """Messages of a type, in which any field may be absent."""
    return _message(draw, message_of(schema, indexes), 2)


def _message(draw: st.DrawFn, kind: Any, depth: int) -> Any:
    made = GetMessageClass(kind)()
    if kind.full_name == _TIME:
        made.seconds = draw(st.integers(-62135596800, 253402300799))
        made.nanos = draw(st.sampled_from([0, 1, 999_999_999, 120_000_000, 5_000]))
    elif kind.full_name == _DURATION:
        made.FromNanoseconds(draw(st.integers(-(10**15), 10**15)))
    elif kind.full_name == _MASK:
        made.paths.extend(draw(st.lists(st.sampled_from(["a", "a_b", "a.b_c", "a_b_c"]), max_size=3)))
    elif kind.full_name in _PLAIN:
        _plain(draw, made)
    else:
        for each in kind.fields:
            inner = each.message_type
            if (inner is None or depth) and draw(st.booleans()):
                _set(draw, made, each, depth)
    return made


def _plain(draw: st.DrawFn, made: Any) -> None:
    leaf = st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), _TEXT)
    whole = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=5,
    )
    if made.DESCRIPTOR.name == "Struct":
        made.update(draw(st.dictionaries(_TEXT, whole, max_size=3)))
    elif made.DESCRIPTOR.name == "ListValue":
        made.extend(draw(st.lists(whole, max_size=3)))
    else:
        inner = GetMessageClass(made.DESCRIPTOR.fields_by_name["list_value"].message_type)()
        inner.append(draw(whole))
        made.CopyFrom(inner.values[0])


def _set(draw: st.DrawFn, made: Any, each: Any, depth: int) -> None:
    inner, count = each.message_type, draw(st.integers(0, 3))
    if inner is not None and inner.GetOptions().map_entry:
        entries, value = getattr(made, each.name), inner.fields_by_name["value"]
        for _ in range(count):
            key = draw(_scalar(inner.fields_by_name["key"]))
            if value.message_type is None:
                entries[key] = draw(_scalar(value))
            else:
                entries[key].CopyFrom(_message(draw, value.message_type, depth - 1))
    elif inner is None:
        scalar = _scalar(each)
        if each.is_repeated:
            getattr(made, each.name).extend([draw(scalar) for _ in range(count)])
        else:
            setattr(made, each.name, draw(scalar))
    elif each.is_repeated:
        getattr(made, each.name).extend([_message(draw, inner, depth - 1) for _ in range(count)])
    else:
        getattr(made, each.name).CopyFrom(_message(draw, inner, depth - 1))


def _scalar(each: Any) -> st.SearchStrategy[Any]:
    if each.enum_type is not None:
        known = st.sampled_from([*each.enum_type.values_by_number])
        return known if each.enum_type.is_closed else known | st.just(77)
    if each.type in _BITS:
        half = 2 ** (_BITS[each.type] - 1)
        return st.integers(-half, half - 1)
    if each.type in _UNSIGNED_BITS:
        return st.integers(0, 2 ** _UNSIGNED_BITS[each.type] - 1)
    of_others = {_DOUBLE: st.floats(), _FLOAT_TYPE: _FLOAT, _BOOL: st.booleans(), _STRING: _TEXT}
    return of_others.get(each.type, st.binary(max_size=4))


class Within(dict[str, Any]):
    """A message within itself, which is to be the text of its JSON."""


def expected(message: Any) -> Any:
    """The JSON of a message: as Protobuf has it, but for what docs/columns.md says."""
    shown = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _expected(shown, message.DESCRIPTOR, (), False)


def same(found: Any, wanted: Any) -> bool:
    """Whether JSON is what is expected."""
    if isinstance(wanted, Within):
        return same(json.loads(found), {**wanted})
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in found)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def _expected(shown: Any, kind: Any, within: tuple[str, ...], in_text: bool) -> Any:
    name = kind.full_name
    if name.startswith("google.protobuf."):
        value = kind.fields_by_name.get("value")
        return _leaf(shown, value) if name.endswith("Value") and value is not None else shown
    is_text = name in within and not in_text
    inside = ((*within, name), in_text or is_text)
    found = {each.name: _field(shown.get(each.name), each, *inside) for each in kind.fields}
    return Within(found) if is_text else found


def _field(shown: Any, each: Any, *inside: Any) -> Any:
    inner = each.message_type
    if shown is None:
        return None
    if inner is not None and inner.GetOptions().map_entry:
        value = inner.fields_by_name["value"]
        return {key: _field(one, value, *inside) for key, one in shown.items()}
    if each.is_repeated:
        return [_one(one, each, *inside) for one in shown]
    return _one(shown, each, *inside)


def _one(shown: Any, each: Any, *inside: Any) -> Any:
    return _leaf(shown, each) if each.message_type is None else _expected(shown, each.message_type, *inside)


def _leaf(shown: Any, each: Any) -> Any:
    if isinstance(shown, str) and each.type in {**_BITS, **_UNSIGNED_BITS}:
        return int(shown)
    if each.type == _FLOAT_TYPE and isinstance(shown, float):
        return struct.unpack("<f", struct.pack("<f", shown))[0]
    return shown
