"""Objects under one root: get, get range, list, delete, put; and put-if-absent, on which every commit rests.

Paths are relative to the root, with `/`; errors name them so, and never a path of the machine.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from log_tables.clock import Clock, SystemClock
from log_tables.errors import InvalidArgument
from log_tables.store.local import LocalStore, make_root
from log_tables.store.objects import Data, ObjectInfo, one_spelling

__all__ = ["Data", "ObjectInfo", "Store", "open_store"]

_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")


class Store(Protocol):
    """What lakelog asks of a store. Every method blocks, and may be called from any thread.

    All raise StoreUnavailable when the store does not answer; of a put that alone says nothing about whether
    it happened, unless it is PutRefused. A path that leads out of the root is InvalidArgument.
    """

    url: str
    """The root as a URL: what `open_store` takes."""

    options: Mapping[str, str]
    """The options that `open_store` took with it; they may hold secrets."""

    def get(self, path: str) -> bytes:
        """The whole object. Raises ObjectMissing."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes from byte `start`, fewer at the end. Raises ObjectMissing."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """What is known of an object without reading it. Raises ObjectMissing."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Every object below the directory `prefix`, at any depth, ordered by path.

        Only paths greater than `start_after`. Objects put or deleted meanwhile may be in it or not.
        """
        ...

    def list_dirs(self, prefix: str) -> Sequence[str]:
        """The whole paths of the directories right below the directory `prefix`, ordered.

        A directory is there as long as an object is below it.
        """
        ...

    def put(self, path: str, data: Data) -> None:
        """Create or replace the object, durable on return; a reader sees the old or the new one whole."""
        ...

    def put_if_absent(self, path: str, data: Data) -> None:
        """Create the object, whole and durable on return.

        Raises AlreadyExists when there is one; an object store may say so although there is none, to racers.
        """
        ...

    def put_new(self, path: str, data: Data) -> None:
        """Create an object whose name nobody else can choose, durable on return; until then a reader, or who
        comes after a crash, may see a part of it.
        """
        ...

    def make_durable(self, directory: str) -> None:
        """Make durable what is right in `directory` now, whoever put it, and what is there no more.

        What a look finds may not be durable yet, or never be: its put may be under way, have failed halfway,
        or have died. A put that ends well has done the same for all that was there before it. Of an object
        that was put new and not answered for, the content is not meant.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove the object; that there is none is fine. It may come back until `make_durable`."""
        ...

    def remove_temporaries(self, older_than_ms: int) -> int:
        """Remove what killed puts left behind, if it is older; returns how many files."""
        ...

    def now_ms(self) -> int:
        """The store's own clock, which stamps `modified_ms`: milliseconds since 1970 UTC. Asks the store."""
        ...

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:
        """What no copy of the object has, and the object keeps as long as nobody puts it again; on a disk
        that of `directories`, too, and of the root.

        A copy that a disk makes of its blocks is the same to it. Raises ObjectMissing.
        """
        ...

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        """Where Delta readers find the table at `path`: a location and their storage options.

        Raises InvalidArgument for a store that only this process sees.
        """
        ...


def open_store(
    url: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    create: bool = True,
    clock: Clock | None = None,
    first: tuple[str, bytes] | None = None,
) -> Store:
    """The store at a directory, or at an `s3://`, `gs://`, `az://` or `memory://` URL.

    `options` are the object store's, in the names that delta-rs uses too (`aws_endpoint`, `allow_http` …);
    they win over its environment variables (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` …). Unless `create` is
    false, for who only reads, a directory that does not exist is made, and an object store has to show that
    it has conditional puts. A directory that is made has the object `first`, a path and its data, from its
    first moment on. Raises InvalidArgument, StoreUnavailable.
    """
    text = os.fspath(url)
    parts = urlsplit(text) if "://" in text else None
    if parts is None or (parts.scheme == "file" and not parts.netloc):
        path = text if parts is None else unquote(parts.path)
        return _open_directory(path, text, options or {}, create, clock, first)
    if parts.scheme not in _SCHEMES:
        raise InvalidArgument(
            f"the scheme {parts.scheme!r} of {text} is not known; "
            "use a directory, file:///, s3://, gs://, az:// or memory://"
        )
    from log_tables.store.bucket import ObjectStore  # who only uses a directory is spared the import

    store = ObjectStore(text, options or {})
    if create:
        store.check_puts()
    return store


def overlap(one: str, other: str) -> bool:
    """Whether of two roots, by the URLs of their stores, one is the other or lies in it."""
    first, second = f"{_real(one)}/", f"{_real(other)}/"
    return first.startswith(second) or second.startswith(first)


def _real(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return os.path.realpath(unquote(parts.path)).rstrip("/")
    return one_spelling(url).rstrip("/")


def _open_directory(
    path: str,
    text: str,
    options: Mapping[str, str],
    create: bool,
    clock: Clock | None,
    first: tuple[str, bytes] | None,
) -> Store:
    if not path:
        raise InvalidArgument("the root of the tables is empty; name a directory or a URL")
    root = Path(path).absolute()
    if create:
        make_root(root, text, first)
    elif not root.is_dir():
        raise InvalidArgument(f"there is no directory {text}; name the root of the tables")
    return LocalStore(root, clock or SystemClock(), options)
