"""A function for each message and version that makes bytes of the message.

Records are not copied: they are chunks of their own, between the bytes of the other fields.
"""

from collections.abc import Callable, Sequence
from functools import cache
from struct import pack

from api.kafka.protocol.notation import BYTES, RECORDS, STRING, Field, Message, Struct, fields_in, tagged_in
from api.kafka.protocol.primitives import ONE_BYTE, Fragments, varint
from api.kafka.protocol.source import Source

Chunk = bytes | bytearray | memoryview

_WITH_LENGTH = {STRING, BYTES, RECORDS}


def tag_section(tagged: Sequence[tuple[int, bytearray]]) -> bytearray:
    """Tagged fields by their tags, as they end a struct."""
    out = bytearray(varint(len(tagged)))
    for tag, content in tagged:
        out += varint(tag)
        out += varint(len(content))
        out += content
    return out


def fragments_of(records: Chunk | Fragments) -> Sequence[Chunk]:
    """The chunks that are sent for `records`."""
    return records.fragments if isinstance(records, Fragments) else (records,)


_OBJECTS = (pack, fragments_of, tag_section, varint)


@cache
def encoder(message: type[Message], version: int) -> Callable[[Message, bytearray], list[Chunk]]:
    """The function that appends a `message` in `version` to some bytes, and returns them and what follows.

    Raises ValueError: the message has no such version.
    """
    return _EncoderSource(message, version).compiled()


class _EncoderSource(Source):
    """`encode(message, out)`: `out` is the chunk that grows, `chunks` are those that are complete."""

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__("def encode(message, out):", message, version)
        self.objects |= {each.__name__: each for each in _OBJECTS}

    def compiled(self) -> Callable[[Message, bytearray], list[Chunk]]:
        self.line("chunks = []")
        self._struct(self.message, "message")
        self._end_run()
        self.line("chunks.append(out)")
        self.line("return chunks")
        return self.function("encode")

    def _struct(self, struct: type[Struct], owner: str) -> None:
        """A struct that `owner` names. The run of fixed fields at its end is still to be written."""
        for field in fields_in(struct, self.version):
            self._field(field, f"{owner}.{field.name}")
        if self.flexible:
            self._tags(tagged_in(struct, self.version), owner)

    def _field(self, field: Field, value: str) -> None:
        null = field.null_in(self.version) and field.tag is None
        if field.repeated:
            self._counted(field, value, null=null)
        elif isinstance(field.element, type):
            self._nested(field.element, value, null=null)
        elif field.element in _WITH_LENGTH:
            self._text(field.element, value, null=null)
        else:
            self.run.append((field.element, value))

    def _end_run(self) -> None:
        """Writes the fields of fixed width that stand together."""
        if not self.run:
            return
        layout = self.run_layout()
        values = ", ".join(value for _, value in self.run)
        if layout.format == ">B":
            self.line(f"out.append({values})")
        else:
            self.line(f"out += {self.constant('p', layout.pack)}({values})")
        self.run = []

    def _length(self, length: str, plain: str) -> None:
        """A length or a count that is an expression: `plain` is its old layout."""
        if not self.flexible:
            self.run.append((plain, length))
            self._end_run()
            return
        self._end_run()
        counted = self.variable("n")
        self.line(f"{counted} = {length} + 1")
        with self.block(f"if {counted} < {ONE_BYTE}:"):
            self.line(f"out.append({counted})")
        with self.block("else:"):
            self.line(f"out += varint({counted})")

    def _null(self, plain: str) -> None:
        """The length of null."""
        self.line("out.append(0)" if self.flexible else f"out += pack('>{plain}', -1)")

    def _text(self, element: str, value: str, *, null: bool) -> None:
        plain = "h" if element == STRING else "i"
        text = self.variable("v")
        if null:
            self._end_run()
            self.line(f"{text} = {value}")
            with self.block(f"if {text} is None:"):
                self._null(plain)
            with self.block("else:"):
                self._with_length(element, text, text, plain)
        else:
            self._with_length(element, value, text, plain)

    def _with_length(self, element: str, value: str, name: str, plain: str) -> None:
        """`value`, which becomes the variable `name`, after its length."""
        if element == STRING:
            self.line(f"{name} = {value}.encode()")
        elif name != value:
            self.line(f"{name} = {value}")
        self._length(f"len({name})", plain)
        if element == RECORDS:
            self.line("chunks.append(out)")
            self.line(f"chunks += fragments_of({name})")
            self.line("out = bytearray()")
        else:
            self.line(f"out += {name}")

    def _nested(self, struct: type[Struct], value: str, *, null: bool) -> None:
        owner = self.variable("s")
        self._end_run()
        self.line(f"{owner} = {value}")
        if not null:
            self._struct(struct, owner)
            return
        with self.block(f"if {owner} is None:"):
            self.line("out += pack('>b', -1)")
        with self.block("else:"):
            self.run.append(("b", "1"))
            self._struct(struct, owner)
            self._end_run()

    def _counted(self, field: Field, value: str, *, null: bool) -> None:
        array = self.variable("v")
        if not null:
            self.line(f"{array} = {value}")
            self._array(field, array)
            return
        self._end_run()
        self.line(f"{array} = {value}")
        with self.block(f"if {array} is None:"):
            self._null("i")
        with self.block("else:"):
            self._array(field, array)

    def _array(self, field: Field, array: str) -> None:
        self._length(f"len({array})", "i")
        if isinstance(field.element, str) and field.element not in _WITH_LENGTH:
            self.line(f"out += pack(f'>{{len({array})}}{field.element}', *{array})")
            return
        element = self.variable("e")
        with self.block(f"for {element} in {array}:"):
            if isinstance(field.element, type):
                self._struct(field.element, element)
                self._end_run()
            else:
                self._text(field.element, element, null=False)

    def _tags(self, fields: list[Field], owner: str) -> None:
        if not fields:
            self.run.append(("B", "0"))
            return
        self._end_run()
        tagged = self.variable("t")
        self.line(f"{tagged} = []")
        for field in fields:
            value, held = self.variable("v"), self.variable("o")
            self.line(f"{value} = {owner}.{field.name}")
            default = self.constant("d", field.default)
            unset = " is not " if field.default is None else " != "
            with self.block(f"if {value}{unset}{default}:"):
                self.line(f"{held}, out = out, bytearray()")
                self._field(field, value)
                self._end_run()
                self.line(f"{tagged}.append(({field.tag}, out))")
                self.line(f"out = {held}")
        self.line(f"out += tag_section({tagged})")
