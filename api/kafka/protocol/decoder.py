"""A function for each message and version that makes the message of bytes.

It is straight code: fields of fixed width that stand together are read at once, arrays are loops, and nothing
is recursive. A length is compared with the bytes that follow, and an array's count also with a budget of
elements, before anything is made of them.
"""

from collections.abc import Callable
from functools import cache, partial
from struct import calcsize, unpack_from
from typing import Any

from api.kafka.protocol.notation import BYTES, RECORDS, STRING, Field, Message, Struct, fields_in, tagged_in
from api.kafka.protocol.primitives import (
    Malformed,
    no_null,
    no_room,
    read_varint,
    skip_tags,
    too_many,
    varint_tail,
)
from api.kafka.protocol.source import Source
from log_tables.limits import KAFKA_TEXT_MAX_BYTES

_OBJECTS = (Malformed, no_null, no_room, read_varint, skip_tags, too_many, varint_tail, unpack_from)
_WITH_LENGTH = {STRING: "str(data[at:end], 'utf-8')", BYTES: "bytes(data[at:end])", RECORDS: "data[at:end]"}


@cache
def decoder(message: type[Message], version: int) -> Callable[[memoryview, int, int], tuple[Any, int]]:
    """The function that makes a `message` of its bytes in `version`. It also takes how many elements there
    may be in all, and in one array; it also returns how many more there might have been.

    It raises TooMany for more; Malformed, struct.error, IndexError or UnicodeDecodeError where the bytes are
    no such message.

    Raises ValueError: the message has no such version.
    """
    return _DecoderSource(message, version).compiled()


class _DecoderSource(Source):
    """`decode(data, budget, most)`: `at` is where the next field begins, `size` where the bytes end."""

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__("def decode(data, budget, most):", message, version)
        self.objects |= {each.__name__: each for each in _OBJECTS}

    def compiled(self) -> Callable[[memoryview, int, int], tuple[Any, int]]:
        self.line("at, size = 0, len(data)")
        made = self._struct(self.message)
        self._end_run()
        self.line(f"return {made}, budget")
        return self.function("decode")

    def _struct(self, struct: type[Struct]) -> str:
        """The expression of a struct at `at`. The run of fixed fields at its end is still to be read."""
        values = {field.name: self._field(field, struct) for field in fields_in(struct, self.version)}
        if self.flexible:
            values |= self._tags(struct)
        name = self.constant("c", struct)
        return f"{name}({', '.join(f'{key}={value}' for key, value in values.items())})"

    def _field(self, field: Field, struct: type[Struct]) -> str:
        """The variable that holds the field."""
        value = self.variable("v")
        path = f"{struct.__name__}.{field.name}"
        if field.repeated:
            self._counted(field, path, value)
        elif isinstance(field.element, type):
            self._nested(field, field.element, value)
        elif field.element in _WITH_LENGTH:
            self._text(field.element, path, value, null=field.null_in(self.version))
        else:
            self.run.append((field.element, value))
        return value

    def _end_run(self) -> None:
        """Reads the fields of fixed width that stand together."""
        if not self.run:
            return
        layout = self.run_layout()
        names = ", ".join(name for _, name in self.run)
        if layout.format == ">B":
            self.line(f"{names} = data[at]")
        else:
            self.line(f"{names}, = {self.constant('r', layout.unpack_from)}(data, at)")
        self.line(f"at += {layout.size}")
        self.run = []

    def _length(self, plain: str) -> str:
        """The variable of a length or a count, which is negative for null: `plain` is its old layout."""
        length = self.variable("n")
        if self.flexible:
            self.run.append(("B", length))
            self._end_run()
            with self.block(f"if {length} > 127:"):
                self.line(f"{length}, at = varint_tail(data, at, {length})")
            self.line(f"{length} -= 1")
        else:
            self.run.append((plain, length))
            self._end_run()
        return length

    def _text(self, element: str, path: str, value: str, *, null: bool) -> None:
        length = self._length("h" if element == STRING else "i")
        with self.block(f"if {length} < 0:"):
            self.line(f"{value} = None" if null else f"raise no_null({path!r})")
        with self.block("else:"):
            self.line(f"end = at + {length}")
            is_long = f" or {length} > {KAFKA_TEXT_MAX_BYTES}" if element == STRING and self.flexible else ""
            with self.block(f"if end > size{is_long}:"):
                self.line(f"raise no_room({path!r}, {length})")
            self.line(f"{value} = {_WITH_LENGTH[element]}")
            self.line("at = end")

    def _nested(self, field: Field, struct: type[Struct], value: str) -> None:
        if not field.null_in(self.version) or field.tag is not None:
            made = self._struct(struct)
            self._end_run()
            self.line(f"{value} = {made}")
            return
        mark = self.variable("n")
        self.run.append(("b", mark))
        self._end_run()
        with self.block(f"if {mark} < 0:"):
            self.line(f"{value} = None")
        with self.block("else:"):
            made = self._struct(struct)
            self._end_run()
            self.line(f"{value} = {made}")

    def _counted(self, field: Field, path: str, value: str) -> None:
        count = self._length("i")
        least = _least_bytes(field.element, self.version, flexible=self.flexible)
        with self.block(f"if {count} < 0:"):
            self.line(f"{value} = None" if field.null_in(self.version) else f"raise no_null({path!r})")
        with self.block("else:"):
            with self.block(f"if {count} > budget or {count} > most:"):
                self.line(f"raise too_many({path!r}, {count})")
            with self.block(f"if {count} * {least} > size - at:"):
                self.line(f"raise no_room({path!r}, {count})")
            self.line(f"budget -= {count}")
            if isinstance(field.element, str) and field.element not in _WITH_LENGTH:
                self.line(f"{value} = [*unpack_from(f'>{{{count}}}{field.element}', data, at)]")
                self.line(f"at += {count} * {least}")
            else:
                self._elements(field, count, value, path)

    def _elements(self, field: Field, count: str, value: str, path: str) -> None:
        self.line(f"{value} = []")
        with self.block(f"for _ in range({count}):"):
            if isinstance(field.element, type):
                element = self._struct(field.element)
                self._end_run()
            else:
                element = self.variable("v")
                self._text(field.element, path, element, null=False)
            self.line(f"{value}.append({element})")

    def _tags(self, struct: type[Struct]) -> dict[str, str]:
        """The variables of the tagged fields, by their names."""
        fields = tagged_in(struct, self.version)
        values = {field.name: self.variable("v") for field in fields}
        count = self.variable("n")
        self.run.append(("B", count))
        self._end_run()
        for field in fields:
            default = "[]" if field.repeated else self.constant("d", field.default)
            self.line(f"{values[field.name]} = {default}")
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, at = varint_tail(data, at, {count})")
            if fields:
                self._known_tags(fields, values, count, struct)
            else:
                self.line(f"at, budget = skip_tags(data, at, {count}, budget)")
        return values

    def _known_tags(
        self, fields: list[Field], values: dict[str, str], count: str, struct: type[Struct]
    ) -> None:
        tag, length, stop = self.variable("n"), self.variable("n"), self.variable("n")
        self.line(f"budget -= {count}")
        with self.block("if budget < 0:"):
            self.line(f"raise too_many('tagged fields', {count})")
        with self.block(f"for _ in range({count}):"):
            self.line(f"{tag}, at = read_varint(data, at)")
            self.line(f"{length}, at = read_varint(data, at)")
            self.line(f"{stop} = at + {length}")
            with self.block(f"if {stop} > size:"):
                self.line(f"raise no_room('a tagged field', {length})")
            word = "if"
            for field in fields:
                with self.block(f"{word} {tag} == {field.tag}:"):
                    read = self._field(field, struct)
                    self._end_run()
                    self.line(f"{values[field.name]} = {read}")
                word = "elif"
            with self.block("else:"):
                self.line(f"at = {stop}")
            with self.block(f"if at != {stop}:"):
                self.line(f"raise Malformed(f'tagged field {{{tag}}} is not {{{length}}} bytes long')")


def _least_bytes(element: str | type[Struct], version: int, *, flexible: bool) -> int:
    """The bytes that the smallest element takes."""
    if isinstance(element, str):
        if element not in _WITH_LENGTH:
            return calcsize(f">{element}")
        return 1 if flexible else 2 if element == STRING else 4
    least = partial(_least_bytes, version=version, flexible=flexible)
    total = int(flexible)
    for field in fields_in(element, version):
        if field.repeated:
            total += 1 if flexible else 4
        elif isinstance(field.element, type) and field.null_in(version):
            total += 1
        else:
            total += least(field.element)
    return total
