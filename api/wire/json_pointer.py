"""A JSON pointer (RFC 6901) that is followed on the text of a value: what it leads to stays text, too."""

import re
from functools import lru_cache
from typing import Any

import msgspec

from log_tables.errors import InvalidArgument, InvalidRecord
from log_tables.limits import KEY_STEPS_MAX, NESTED_FIELD_MAX_BYTES

_POINTER = re.compile(r'(?:/(?:[^~/"\\\x00-\x1f]|~[01])*)+')
"""Without what stands in JSON only behind a backslash: such fields cannot be looked for."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_SHOWN_CHARS = 100
_items = msgspec.json.Decoder(list[msgspec.Raw])


class JsonPointer:
    """A pointer to a field of values."""

    def __init__(self, text: str) -> None:
        """Raises InvalidArgument for a text that is no pointer to a field, or to one that is too deep."""
        if not _POINTER.fullmatch(text):
            raise InvalidArgument(
                f"{text[:_SHOWN_CHARS]!r} is no JSON pointer to a field; write /field, or /field/inner"
            )
        self._text = text
        self._steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]
        if len(self._steps) > KEY_STEPS_MAX:
            raise InvalidArgument(
                f"{text[:_SHOWN_CHARS]!r} leads through {len(self._steps)} fields, {KEY_STEPS_MAX} are "
                "allowed; take the key from a field that is not so deep"
            )

    def find(self, value: bytes) -> bytes | None:
        """The JSON of the field in the JSON `value`; None if it is absent, or null.

        Raises InvalidRecord for an array on the way that is too large to look for an item.
        """
        found = value
        for step in self._steps:
            inner = self._inner(found, step)
            if inner is None:
                return None
            found = bytes(inner)
        return None if found == b"null" else found

    def _inner(self, text: bytes, step: str) -> msgspec.Raw | None:
        begin = text[:1]
        if begin == b"{":
            found = _field(step).decode(text).found
            return None if found is msgspec.UNSET else found
        if begin != b"[" or not _INDEX.fullmatch(step):
            return None
        if len(text) > NESTED_FIELD_MAX_BYTES:
            raise InvalidRecord(
                f"the array before {step} of {self._text[:_SHOWN_CHARS]!r} has {len(text)} bytes, an item is "
                f"looked for in {NESTED_FIELD_MAX_BYTES} at most; take the key from a field"
            )
        items = _items.decode(text)
        return items[int(step)] if int(step) < len(items) else None


@lru_cache(maxsize=256)
def _field(name: str) -> msgspec.json.Decoder[Any]:
    """A decoder of objects that keeps the text of one field and skips all others; of two the last counts."""
    fields = [("found", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)]
    return msgspec.json.Decoder(msgspec.defstruct("_Field", fields, rename={"found": name}, gc=False))
