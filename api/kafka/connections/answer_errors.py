"""The errors that an answer has: of itself, and of each part of it."""

from collections.abc import Iterator
from functools import cache

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.notation import Struct, fields_of


def errors_in(answer: Struct) -> Iterator[str]:
    """Kafka's name of each error in `answer`, or the number of one that this door has no name for."""
    own, parts = _places(type(answer))
    if own and answer.error_code:  # type: ignore[attr-defined]
        yield _name(answer.error_code)  # type: ignore[attr-defined]
    for name in parts:
        found = getattr(answer, name)
        for part in found if isinstance(found, list) else [] if found is None else [found]:
            yield from errors_in(part)


@cache
def _places(struct: type[Struct]) -> tuple[bool, tuple[str, ...]]:
    """Whether `struct` has an error of its own, and which of its fields have parts with errors."""
    own, parts = False, []
    for field in fields_of(struct):
        own |= field.name == "error_code"
        if not isinstance(field.element, str) and any(_places(field.element)):
            parts.append(field.name)
    return own, tuple(parts)


@cache
def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)
