"""Names and types of a declaration as they are written: Spark's DDL, token by token."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from log_tables.columns.column_type import (
    DECIMALS,
    array_of,
    decimal_type,
    leaf,
    map_of,
    struct_of,
    without_case,
)
from log_tables.errors import InvalidConfig
from log_tables.limits import COLUMN_NAME_MAX_CHARS, NESTED_TYPES_MAX

_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|'(?P<text>(?:[^']|'')*)'|(?P<word>[^\s,;:<>(){}'\"`=]+)|(?P<mark>[,:<>()]))"
)
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
UNSOUGHT = re.compile(r"[\"\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no field can have in its name, as it could not be looked for."""


def check_plain_name(name: str) -> None:
    """Raise InvalidConfig for a name that no column of Parquet, nor a field of a struct, can have."""
    if _FORBIDDEN.search(name) or not name.isprintable():
        raise InvalidConfig(
            f"the name {name!r} has a character that a column of Parquet cannot have; leave out spaces, "
            "control characters and , ; { } ( ) ="
        )
    if not 1 <= len(name) <= COLUMN_NAME_MAX_CHARS:
        raise InvalidConfig(
            f"a column has a name of {len(name)} characters; use 1 to {COLUMN_NAME_MAX_CHARS}"
        )


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a mark as it is written; a name between backticks, a text between quotes."""

    text: str
    kind: str

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word


@dataclass(slots=True)
class DdlReader:
    """Reads names and types, token by token. Raises InvalidConfig."""

    source: str
    _tokens: list[_Token] = field(init=False)
    _next: int = 0

    def __post_init__(self) -> None:
        self._tokens = [*self._cut()]

    def _cut(self) -> Iterator[_Token]:
        at, text = 0, self.source.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._wrong(text[at:].strip()[:20])
            inner = match[match.lastgroup]
            quote = {"quoted": "`", "text": "'"}.get(match.lastgroup)
            yield _Token(inner if quote is None else inner.replace(quote * 2, quote), match.lastgroup)
            at = match.end()

    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def text_after(self, word: str) -> str | None:
        """The text between quotes that follows `word`; None where another word is, or the end."""
        if self.is_at_end() or not self._tokens[self._next].is_word(word):
            return None
        self._next += 1
        token = self._take()
        if token.kind != "text":
            raise self._wrong(token.text)
        return token.text

    def type(self, depth: int = 0) -> pa.DataType:
        token = self._take()
        word = token.text.lower()
        if token.kind != "word":
            raise self._wrong(token.text)
        if word in DECIMALS:
            return decimal_type([*self._parameters()])
        if word not in ("array", "map", "struct"):
            return leaf(token.text)
        if depth >= NESTED_TYPES_MAX:
            raise InvalidConfig(
                f"a type is nested more than {NESTED_TYPES_MAX} deep; declare an inner part as a column, "
                "with FROM '/its/path'"
            )
        self.expect("<")
        kind = {"array": self._array, "map": self._map, "struct": self._struct}[word](depth + 1)
        self.expect(">")
        return kind

    def _parameters(self) -> Iterator[str]:
        """The words between parentheses after a type, if there are any."""
        mark = "("
        while self._is_mark(mark):
            self._next += 1
            yield self.name()
            mark = ","
        if mark == ",":
            self.expect(")")

    def _array(self, depth: int) -> pa.DataType:
        return array_of(self.type(depth))

    def _map(self, depth: int) -> pa.DataType:
        if self.type(depth) != pa.string():
            raise InvalidConfig("a map has keys of another type than string; write map<string, …>")
        self.expect(",")
        return map_of(self.type(depth))

    def _struct(self, depth: int) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        while True:
            name = self.name()
            check_plain_name(name)
            if UNSOUGHT.search(name):
                raise InvalidConfig(
                    f"the field {name!r} of a struct has a quote or a backslash; leave this field out"
                )
            if without_case(name) in map(without_case, fields):
                raise InvalidConfig(f"a struct has the field {name} twice; leave one of them out")
            if self._is_mark(":"):
                self._next += 1
            fields[name] = self.type(depth)
            if not self._is_mark(","):
                return struct_of(fields)
            self._next += 1

    def name(self) -> str:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise self._wrong(token.text)
        return token.text

    def _take(self, wanted: str = "") -> _Token:
        if self.is_at_end():
            raise self._wrong("its end", wanted)
        self._next += 1
        return self._tokens[self._next - 1]

    def expect(self, mark: str) -> None:
        token = self._take(mark)
        if token != _Token(mark, "mark"):
            raise self._wrong(token.text, mark)

    def _is_mark(self, mark: str) -> bool:
        return not self.is_at_end() and self._tokens[self._next] == _Token(mark, "mark")

    def _wrong(self, at: str, wanted: str = "") -> InvalidConfig:
        missing = f", where {wanted!r} should be" if wanted else ""
        return InvalidConfig(
            f"the declaration cannot be read at {at!r}{missing}; write NAME TYPE [FROM '/path'], such as "
            "carrier string, at timestamp FROM '/time_hour'"
        )
