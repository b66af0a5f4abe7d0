"""The widest requests of each API of Kafka's protocol: of each of its arrays one that has as many elements as
a request may have, made of the messages' own notation.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from api.kafka.protocol.notation import Field, Message, Struct, fields_in, fields_of
from tests.kit.kafka_requests import GROUP_FIELDS, TOPIC_FIELDS, request_of

GIVEN: dict[str, Any] = {"validate_only": True, "allow_auto_topic_creation": False, "timeout_ms": 10_000}
"""What changes nothing."""

Path = tuple[str, ...]


def arrays_of(struct: type[Struct], version: int, path: Path = ()) -> Iterator[Path]:
    """The ways to the arrays of a message in `version`."""
    for field in fields_in(struct, version):
        if field.repeated:
            yield (*path, field.name)
        if isinstance(field.element, type):
            yield from arrays_of(field.element, version, (*path, field.name))


def widest(request: type[Message], path: Path, count: int, topic: str, group: str) -> Message:
    """A request about `topic` and `group` whose array at `path` has `count` elements, all different."""
    made = request_of(request, topic, group)
    given = {field.name: GIVEN[field.name] for field in fields_of(request) if field.name in GIVEN}
    found: Message = _widened(msgspec.structs.replace(made, **given), path, count)
    return found


def _widened(struct: Any, path: Path, count: int) -> Any:
    kind: type[Struct] = type(struct)
    field = next(each for each in fields_of(kind) if each.name == path[0])
    value = getattr(struct, field.name) or [_element(field)]
    some = value if field.repeated else [value]
    if len(path) > 1:
        some = [_widened(some[0], path[1:], count)]
    else:
        some = [_numbered(field, some[0], number) for number in range(count)]
    return msgspec.structs.replace(struct, **{field.name: some if field.repeated else some[0]})


def _element(field: Field) -> Any:
    if isinstance(field.element, type):
        return field.element()
    return "" if field.element == "string" else 0


def _numbered(field: Field, element: Any, number: int) -> Any:
    """An element like this one that differs from all others."""
    if isinstance(element, str):
        return f"{element or 'x'}-{number}"
    if not isinstance(element, Struct):
        return number % 128 if field.element == "b" else number
    for each in fields_of(type(element)):
        if each.repeated:
            continue
        if each.element == "string" and (each.name in TOPIC_FIELDS | GROUP_FIELDS | {"member_id"}):
            return msgspec.structs.replace(element, **{each.name: f"{getattr(element, each.name)}-{number}"})
        if each.element == "i":
            return msgspec.structs.replace(element, **{each.name: number})
    return element
