"""Objects of a store, and their paths below its root."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from log_tables.errors import InvalidArgument

Data = bytes | bytearray | memoryview
"""The data of a put: anything whose bytes can be read in place."""

PutIfAbsent = Callable[[str, Data], None]
"""A put of an object that must be absent (`Store.put_if_absent`)."""


class Put(NamedTuple):
    """An object to be put if absent, and the objects, by path, that it relies on and nobody else knows."""

    path: str
    data: Data
    new: Sequence[tuple[str, Data]] = ()


TEMPORARY_PREFIX = ".tmp-"
"""The beginning of the store's own names, which no listing shows."""

_ONE_SCHEME = {"s3a": "s3", "abfss": "abfs"}


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The path of an object under the root, its size in bytes, and its last change by the store's clock."""

    path: str
    size: int
    modified_ms: int


def check_path(path: str) -> str:
    """`path`, if it names an object below the root by its shortest name. Raises InvalidArgument."""
    segments = path.split("/")
    if "\0" in path or any(name in ("", ".", "..") for name in segments):
        raise InvalidArgument(
            f"the path {path!r} does not lead to an object below the root; name one that does"
        )
    if any(name.startswith(TEMPORARY_PREFIX) for name in segments):
        raise InvalidArgument(
            f"the path {path!r} has a name that begins with {TEMPORARY_PREFIX}, which is "
            "reserved; choose another"
        )
    return path


def check_directory(prefix: str) -> str:
    """`prefix`, a directory (the root is empty), without its last `/`. Raises InvalidArgument."""
    directory = prefix.removesuffix("/")
    return check_path(directory) if directory else ""


def one_spelling(url: str) -> str:
    """The URL of a bucket with one scheme for all its aliases: `s3a://b/log` becomes `s3://b/log`."""
    scheme, separator, rest = url.partition("://")
    return f"{_ONE_SCHEME.get(scheme, scheme)}{separator}{rest}"
