"""How much may be made of one value, and how deep it may be nested."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from log_tables.limits import EXPANDED_MAX_BYTES, VALUE_DEPTH_MAX
from log_tables.schemas.schema import Undecodable


@dataclass(slots=True)
class Room:
    """`size` bytes are left to make, and `depth` levels of types within themselves.

    A type within itself becomes text, the JSON of it and all that is in it. `within` has the names of the
    types that the reader is in, and `in_text` says that it is in such a text.
    """

    size: int = EXPANDED_MAX_BYTES
    depth: int = VALUE_DEPTH_MAX
    in_text: bool = False
    within: set[str] = field(default_factory=set)

    def take(self, size: int) -> None:
        """Make `size` bytes. Raises Undecodable."""
        self.size -= size
        if self.size < 0:
            raise Undecodable(f"would be more than {EXPANDED_MAX_BYTES} bytes")

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """Enter a type within itself; whether it is the outermost, which becomes text. Raises Undecodable."""
        self.depth -= 1
        if self.depth < 0:
            raise Undecodable(f"is nested more than {VALUE_DEPTH_MAX} deep")
        outermost, self.in_text = not self.in_text, True
        yield outermost
        self.depth += 1
        if outermost:
            self.in_text = False
