"""Kafka's messages drawn at random, and the same ones as kafka-python's codec has them."""

import io
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st
from kafka.protocol.data_container import DataContainer
from kafka.protocol.schemas import StructField, load_json

from api.kafka.protocol.apis import APIS, CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from api.kafka.protocol.notation import Field, Message, Struct, fields_of

S = TypeVar("S", bound=Struct)

UNKNOWN_TO_KAFKA_PYTHON = (CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)

MESSAGES: list[type[Message]] = [
    message
    for key, api in APIS.items()
    if key not in UNKNOWN_TO_KAFKA_PYTHON
    for message in (api.request, api.response)
]
"""Every request and response that is described, and that kafka-python has, too."""

OF_CLIENTS = "v3_and_below_"
"""Before the names of fields of AddPartitionsToTxn: newer versions are of brokers among themselves."""

_WIDTHS = {"b": 8, "h": 16, "i": 32, "q": 64}
_UINT16 = "H"


def foreign_versions(message: type[Message]) -> range:
    """The versions of `message` that kafka-python has, too."""
    newest = int(load_json(message.__name__)["validVersions"].split("-")[-1])
    return range(message.versions.first, min(message.versions.last, newest) + 1)


@cache
def _of_kafka_python(message: type[Message]) -> Any:
    """A message as Kafka describes it, without what kafka-python's own classes do for its client."""
    described = StructField(load_json(message.__name__))
    return type(message.__name__, (DataContainer,), {"_struct": described})


_texts = st.text(max_size=12) | st.sampled_from(["flights", "é" * 70, "x" * 127, "x" * 16_383])
_blobs = st.binary(max_size=12) | st.sampled_from([b"\xff" * 126, b"\0" * 20_000])


def messages(message: type[Message]) -> st.SearchStrategy[Message]:
    """Messages with a value for every field of any version."""
    return _structs(message)


def _structs(struct: type[Struct]) -> st.SearchStrategy[Any]:
    return st.builds(struct, **{field.name: _values(field) for field in fields_of(struct)})


def _values(field: Field) -> st.SearchStrategy[Any]:
    one = _elements(field.element)
    values = st.lists(one, max_size=3) if field.repeated else one
    if field.tag is not None:
        values = st.just(field.default) | values
        if isinstance(field.element, type) and not field.repeated:
            # kafka-python leaves a struct out that has only defaults; here it is None that is left out.
            plain = field.element()
            values = values.map(lambda value: None if value == plain else value)
    return st.none() | values if field.nullable else values


def _elements(element: str | type[Struct]) -> st.SearchStrategy[Any]:
    if isinstance(element, type):
        return _structs(element)
    if element in _WIDTHS:
        bound = 2 ** (_WIDTHS[element] - 1)
        return st.integers(-bound, bound - 1)
    simple: dict[str, st.SearchStrategy[Any]] = {
        _UINT16: st.integers(0, 2**16 - 1),
        "?": st.booleans(),
        "d": st.floats(allow_nan=False),
        "16s": st.binary(min_size=16, max_size=16),
        "string": _texts,
        "bytes": _blobs,
        "records": _blobs,
    }
    return simple[element]


def in_version(message: S, version: int) -> S:
    """`message` with what `version` has: other fields have their defaults, and null is empty if need be."""
    values = {}
    for field in fields_of(type(message)):
        if field.versions.include(version):
            values[field.name] = _in_version(field, getattr(message, field.name), version)
    return type(message)(**values)


def _in_version(field: Field, value: Any, version: int) -> Any:
    if value is None:
        empty: dict[Any, Any] = {"string": "", "bytes": b""}
        unset = field.null_in(version) or field.tag is not None
        return None if unset else [] if field.repeated else empty[field.element]
    if not isinstance(field.element, type):
        return value
    return [in_version(each, version) for each in value] if field.repeated else in_version(value, version)


def foreign_bytes(message: Message, version: int) -> bytes:
    """The bytes of the same message as kafka-python makes them."""
    theirs = _of_kafka_python(type(message))
    return _encoded(type(message), _foreign(message, theirs, version), version)


def foreign_default(message: type[Message], version: int) -> bytes:
    """The bytes of kafka-python for a message that nothing was given to."""
    return _encoded(message, _of_kafka_python(message)(version=version), version)


def foreign_round_trip(message: type[Message], data: bytes, version: int) -> bytes:
    """The bytes of what kafka-python reads in `data`."""
    flexible = version >= message.first_flexible
    theirs = _of_kafka_python(message)
    read = theirs._struct.decode(
        io.BytesIO(data), version, compact=flexible, tagged=flexible, data_class=theirs
    )
    return _encoded(message, read, version)


def _encoded(message: type[Message], theirs: Any, version: int) -> bytes:
    flexible = version >= message.first_flexible
    encoded: bytes = theirs._struct.encode(theirs, version=version, compact=flexible, tagged=flexible)
    return encoded


def _foreign(ours: Struct, theirs: Any, version: int) -> Any:
    values = {}
    for field in fields_of(type(ours)):
        value = getattr(ours, field.name)
        if field.versions.include(version) and not (field.tag is not None and value == field.default):
            name = field.name if field.name in theirs.fields else f"{OF_CLIENTS}{field.name}"
            values[name] = _foreign_value(field, value, theirs.fields[name], version)
    return theirs(version=version, **values)


def _foreign_value(field: Field, value: Any, theirs: Any, version: int) -> Any:
    if value is None:
        return None
    if field.element == "16s":
        return value.hex()
    if not isinstance(field.element, type):
        return value
    kind = theirs.data_class
    return (
        [_foreign(each, kind, version) for each in value]
        if field.repeated
        else _foreign(value, kind, version)
    )


def filled(struct: type[S]) -> S:
    """One with an element in each array, text in each string, and every tag."""
    return struct(**{field.name: _filled(field) for field in fields_of(struct)})


def _filled(field: Field) -> Any:
    if isinstance(field.element, type):
        one: Any = filled(field.element)
    else:
        simple = {
            "?": True,
            "d": 1.5,
            "16s": b"0123456789abcdef",
            "string": "text",
            "bytes": b"data",
            "records": b"batch",
        }
        one = simple.get(field.element, 1)
    return [one] if field.repeated else one
