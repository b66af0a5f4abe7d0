"""Protobuf: a message as bytes, of the JSON that stands for it.

The JSON is that which `protobuf` makes, or that of proto3. The runtime of Protobuf reads what is the same in
both. Here are messages in others, so that an error leads to its field; messages within themselves, which may
be text; bytes, which the runtime takes also if they are no base64; `Any`, and Confluent's decimals.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.proto_known import is_map, known
from log_tables.schemas.protobuf import class_of
from log_tables.schemas.schema import Schema, Unencodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_DECIMAL_MAX_DIGITS = 64
_ANY, _ANY_KEYS = "google.protobuf.Any", {"@type", "value"}
_DECIMAL = "confluent.type.Decimal"
_BYTES_VALUE = "google.protobuf.BytesValue"


def from_json(schema: Schema, message: Sequence[int]) -> Callable[[object], bytes]:
    """A function from decoded JSON, that of proto3 or ours, to the message that it stands for.

    `message` are the indexes of its type in the file. It raises Unencodable. Raises InvalidSchema for a
    schema that is none.
    """
    descriptor = message_of(schema, message)
    from google.protobuf.message import DecodeError, EncodeError

    made = class_of(descriptor)
    writer = _Writer(descriptor)

    def encode(value: object) -> bytes:
        target = made()
        try:
            writer.fill(target, descriptor, value)
            # By the class, here and below: a field may have the name of a method.
            encoded: bytes = made.SerializeToString(target, deterministic=True)
            made.FromString(encoded)  # the runtime writes what is nested deeper than it reads
        except EncodeError as error:
            raise Unencodable(f"is no {descriptor.full_name} ({error!s:.120})") from None
        except (DecodeError, RecursionError):
            raise Unencodable("is nested too deep") from None
        return encoded

    return encode


class _Writer:
    """Fills messages of the file of a message type."""

    def __init__(self, descriptor: "Descriptor") -> None:
        from google.protobuf import json_format

        self._pool = descriptor.file.pool
        self._names: dict[str, Mapping[str, FieldDescriptor]] = {}
        self._parse_dict, self._errors = json_format.ParseDict, (json_format.ParseError, *_ERRORS)

    def fill(self, target: Any, kind: "Descriptor", value: Any) -> None:
        """Make of `target`, which is empty, the message that `value` stands for. Raises Unencodable."""
        if _is_whole(kind):
            self._parse(target, _whole(kind, value))
        elif known(kind) == _ANY:
            self._fill_any(target, value)
        elif not isinstance(value, dict):
            raise Unencodable("is no object")
        else:
            self._fill_fields(target, kind, value)

    def _fill_fields(self, target: Any, kind: "Descriptor", value: Mapping[str, Any]) -> None:
        names, given, rest = self._named(kind), dict[str, str](), dict[str, Any]()
        for key, item in value.items():
            field = names.get(key)
            if field is None and not key.startswith("["):  # an extension, in the JSON of proto3
                raise Unencodable("is no field of the schema", (key,))
            if field is None or item is None:
                if field is None or field.containing_oneof is None:  # else a null would displace the others
                    rest[key] = item
                continue
            once = field.name if field.containing_oneof is None else field.containing_oneof.full_name
            if once in given:
                raise Unencodable(f"is there next to {given[once]}, and a message has one of them", (key,))
            given[once] = key
            try:
                if _is_filled(_value_type(field)):
                    self._fill_field(target, field, item)
                else:
                    rest[key] = _each(field, item, partial(_plain, field))
            except Unencodable as error:
                raise Unencodable(error.reason, (key, *error.path)) from None
        if rest:
            self._parse_fields(target, rest)

    def _named(self, kind: "Descriptor") -> Mapping[str, "FieldDescriptor"]:
        """The fields of a type by their names in JSON: those of the file, and those of proto3."""
        found = self._names.get(kind.full_name)
        if found is None:
            found = {**{each.json_name: each for each in kind.fields}, **kind.fields_by_name}
            self._names[kind.full_name] = found
        return found

    def _fill_field(self, target: Any, field: "FieldDescriptor", item: Any) -> None:
        """Fill a field of messages."""
        kind, inside = _value_type(field), getattr(target, field.name)
        assert kind is not None
        if not field.is_repeated:
            type(inside).SetInParent(inside)
            self.fill(inside, kind, _within(kind, item))
        elif is_map(field):
            for key, each in _checked(item, dict, "object").items():
                try:
                    self.fill(inside[self._key(target, field, key)], kind, _within(kind, each))
                except Unencodable as error:
                    raise Unencodable(error.reason, (key, *error.path)) from None
        else:
            for index, each in enumerate(_checked(item, list, "array")):
                try:
                    self.fill(inside.add(), kind, _within(kind, each))
                except Unencodable as error:
                    raise Unencodable(error.reason, (str(index), *error.path)) from None

    def _key(self, target: Any, field: "FieldDescriptor", key: str) -> Any:
        """The key of a map, of the name that it has in JSON."""
        scratch = type(target)()
        self._parse(scratch, {field.name: {key: {}}})
        [found] = getattr(scratch, field.name)
        return found

    def _fill_any(self, target: Any, value: Any) -> None:
        if _checked(value, dict, "object").keys() == _ANY_KEYS and _is_base64(value["value"]):
            kind = _checked(value["@type"], str, "text")
            try:
                target.type_url, target.value = kind, b64decode(value["value"])
            except _ERRORS:
                raise Unencodable("is no name of a type", ("@type",)) from None
        else:
            self._parse(target, value)

    def _parse_fields(self, target: Any, fields: Mapping[str, Any]) -> None:
        """`_parse`, with an error that leads to the field that is wrong by itself."""
        try:
            self._parse(target, fields)
        except Unencodable:
            for name, each in fields.items():
                try:
                    self._parse(type(target)(), {name: each})
                except Unencodable as error:
                    raise Unencodable(error.reason, (name,)) from None
            raise

    def _parse(self, target: Any, value: Any) -> None:
        """Fill `target` as the runtime does."""
        try:
            self._parse_dict(value, target, descriptor_pool=self._pool)
        except self._errors as error:
            raise Unencodable(f"is no value of its type ({error!s:.120})") from None


_ERRORS = (ValueError, TypeError, AttributeError, KeyError, OverflowError)


def _value_field(field: "FieldDescriptor") -> "FieldDescriptor":
    """The field of the values of a map; any other field as it is."""
    if not is_map(field):
        return field
    found: FieldDescriptor = field.message_type.fields_by_name["value"]
    return found


def _value_type(field: "FieldDescriptor") -> "Descriptor | None":
    """The message type of the values of a field, or of a map."""
    found: Descriptor | None = _value_field(field).message_type
    return found


def _is_filled(kind: "Descriptor | None") -> bool:
    """Whether messages of this type are filled here, field by field."""
    return kind is not None and not _is_whole(kind)


def _is_whole(kind: "Descriptor") -> bool:
    """Whether the runtime makes messages of this type of their JSON as a whole."""
    return known(kind) not in (None, _ANY)


def _within(kind: "Descriptor", value: Any) -> Any:
    """A message within another, which may be the text of its JSON."""
    if not isinstance(value, str) or known(kind) == _ANY:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError:
        raise Unencodable("is text that is not JSON") from None


def _each(field: "FieldDescriptor", item: Any, form: Callable[[Any], Any]) -> Any:
    """`form` of each value of a field; one that is of another shape is left to the runtime."""
    if not field.is_repeated:
        return form(item)
    if is_map(field):
        return {key: form(each) for key, each in item.items()} if isinstance(item, dict) else item
    return [form(each) for each in item] if isinstance(item, list) else item


def _plain(field: "FieldDescriptor", value: Any) -> Any:
    """A value of a field, of which the runtime makes one."""
    own = _value_field(field)
    if own.message_type is not None:
        return _whole(own.message_type, value)
    return _base64(value) if own.type == own.TYPE_BYTES else value


def _whole(kind: "Descriptor", value: Any) -> Any:
    """A message, in the JSON of which the runtime makes one."""
    if known(kind) == _DECIMAL:
        return _decimal(value)
    return _base64(value) if known(kind) == _BYTES_VALUE else value


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and b64encode(b64decode(value, validate=True)).decode() == value
    except ValueError:
        return False


def _base64(value: Any) -> Any:
    """A text in base64, of either alphabet and with padding or without, with padding."""
    if value is None:
        return None
    text = _checked(value, str, "text").rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64encode(b64decode(text + "=" * (-len(text) % 4), validate=True)).decode()
    except ValueError:
        raise Unencodable("is no text in base64") from None


def _decimal(value: Any) -> Any:
    """A decimal, of a text or a number, as a message of Confluent's."""
    if value is None or isinstance(value, dict):
        return value
    try:
        sign, digits, exponent = Decimal(value if isinstance(value, str) else repr(value)).as_tuple()
    except InvalidOperation:
        raise Unencodable("is no decimal") from None
    if not isinstance(exponent, int) or len(digits) + abs(exponent) > _DECIMAL_MAX_DIGITS:
        raise Unencodable(f"is no decimal of up to {_DECIMAL_MAX_DIGITS} digits")
    number = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    number = -number if sign else number
    return {
        "value": b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode(),
        "precision": max(len(str(abs(number))), -exponent),
        "scale": max(-exponent, 0),
    }


def _checked(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise Unencodable(f"is no {what}")
    return value
