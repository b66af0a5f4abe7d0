"""What stores hold: objects, named by paths below a root."""

from dataclasses import dataclass

from log_tables.errors import InvalidArgument

Data = bytes | bytearray | memoryview
"""What a put takes: anything whose bytes can be read in place."""

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so belong to the store itself; no listing shows them."""

_ONE_SCHEME = {"s3a": "s3", "abfss": "abfs"}


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's path under the root, size in bytes, and time of its last change by the store's clock."""

    path: str
    size: int
    modified_ms: int


def check_path(path: str) -> str:
    """`path`, if it names an object below the root by its shortest name. Raises InvalidArgument."""
    segments = path.split("/")
    if "\0" in path or any(name in ("", ".", "..") for name in segments):
        raise InvalidArgument(
            f"the path {path!r} does not lead to a place below the root; name one that does"
        )
    if any(name.startswith(TEMPORARY_PREFIX) for name in segments):
        raise InvalidArgument(
            f"the path {path!r} has a name that begins with {TEMPORARY_PREFIX}; choose another"
        )
    return path


def check_directory(prefix: str) -> str:
    """`prefix`, a directory (the root is empty), without its last `/`. Raises InvalidArgument."""
    directory = prefix.removesuffix("/")
    return check_path(directory) if directory else ""


def one_spelling(url: str) -> str:
    """The URL of a bucket as it is with every scheme for it: `s3a://b/log` is `s3://b/log`."""
    scheme, separator, rest = url.partition("://")
    return f"{_ONE_SCHEME.get(scheme, scheme)}{separator}{rest}"
