"""A Python function that is written line by line, and then compiled."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from api.kafka.protocol.notation import Message


class Source:
    """The source of one function for `message` in `version`, and the objects that it names.

    Raises ValueError: the message has no such version.
    """

    def __init__(self, head: str, message: type[Message], version: int) -> None:
        if not message.versions.include(version):
            raise ValueError(f"{message.__name__} has no version {version}")
        self.message = message
        self.version = version
        self.flexible = version >= message.first_flexible
        self.run: list[tuple[str, str]] = []
        """Fields of fixed width that stand together: the format of each, and its variable or value."""

        self._lines = [head]
        self._depth = 1
        self._named = 0
        self.objects: dict[str, object] = {}
        """The globals of the function."""

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines that `head`, as `for` or `if`, is about."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        """A name that nothing else in the function has."""
        self._named += 1
        return f"{prefix}{self._named}"

    def constant(self, prefix: str, value: object) -> str:
        """A name of `value`."""
        name = self.variable(prefix)
        self.objects[name] = value
        return name

    def run_layout(self) -> struct.Struct:
        """The layout of the run, in the byte order of the network."""
        return struct.Struct(">" + "".join(formats for formats, _ in self.run))

    def function(self, name: str) -> Callable[..., Any]:
        """The function `name`, which the lines define."""
        # As dataclasses and named tuples are made: of the field names of our own classes and of constants in
        # this package, never of anything that was received. A loop over descriptions takes ten times as long.
        code = compile("\n".join(self._lines), f"<{self._lines[0]}>", "exec")
        exec(code, self.objects)  # noqa: S102
        function: Callable[..., Any] = self.objects[name]  # type: ignore[assignment]
        return function
