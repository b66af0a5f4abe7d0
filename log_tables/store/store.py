"""Objects under one root: get, get range, list, delete, put; and put-if-absent, on which every commit rests.

Paths are relative to the root, with `/`; errors name them so, and never a path of the machine.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit

from log_tables.clock import Clock, SystemClock
from log_tables.errors import AlreadyExists, InvalidArgument, ObjectMissing, RootMissing
from log_tables.store.file import is_directory, system_flush, unusable
from log_tables.store.local import LocalStore, make_root
from log_tables.store.objects import Data, ObjectInfo, Put, PutIfAbsent, one_spelling

_ORDERED = frozenset({"ext4", "xfs", "btrfs"})
"""Where the fsync of a new file makes its name durable too, which POSIX does not promise."""

_MOUNT_ID = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)


def keeps_order(directory: Path) -> bool:
    """Whether a new file in `directory` has its name durable once the file is fsynced. Only Linux tells."""
    return file_system(directory) in _ORDERED


def file_system(directory: Path) -> str:
    """The type of the file system of `directory` in Linux' words, such as ext4; empty if it is not known."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            opened = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        finally:
            os.close(descriptor)
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""
    # Not by its device: that of a btrfs subvolume is in no list of mounts, and ext2 has ext4's magic number.
    mount = _MOUNT_ID.search(opened)
    types = {line.split(" ", 1)[0]: _type(line) for line in mounts.splitlines()}
    return types.get(mount[1], "") if mount else ""


def _type(line: str) -> str:
    """The type of a mount in its line of mountinfo, proc_pid_mountinfo(5)."""
    _, _, described = line.partition(" - ")
    return described.split(" ", 1)[0]


__all__ = ["Data", "Durability", "ObjectInfo", "Put", "PutIfAbsent", "Store", "ensure", "open_store"]

Durability = Literal["auto", "strict"]
"""How few waits a put may have on a directory: as few as its file system allows, or as POSIX does."""

_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")


class Store(Protocol):
    """A store of objects. Every method blocks, and may be called from any thread.

    Those that read raise StoreUnavailable when the store does not answer, as does `put_new`, whose object
    nobody knows yet. `put`, `put_if_absent` and `delete` raise OutcomeUnknown when they may have happened,
    PutRefused when they certainly have not. A path that leads out of the root is InvalidArgument.
    """

    url: str
    """The root as a URL, for `open_store`."""

    options: Mapping[str, str]
    """The options that `open_store` took with it; they may hold secrets."""

    def get(self, path: str) -> bytes:
        """The whole object. Raises ObjectMissing."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes from byte `start`, fewer at the end. Raises ObjectMissing."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """The size and the time of an object, without reading it. Raises ObjectMissing."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Every object below the directory `prefix`, at any depth, ordered by path.

        Only paths greater than `start_after`. Objects that are put or deleted during it may be in it or not.
        """
        ...

    def list_dirs(self, prefix: str) -> Sequence[str]:
        """The whole paths of the directories right below the directory `prefix`, ordered.

        A directory exists as long as an object is below it.
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
        """Create an object whose name no other process can choose, durable on return.

        Until then, and after a crash, a reader may see a part of it.
        """
        ...

    def put_new_before(self, path: str, data: Data) -> AbstractContextManager[PutIfAbsent]:
        """A `put_new` of `path`, and as the context a `put_if_absent` of objects that rely on it.

        A process that sees one of these finds `path`, which is durable after a `make_durable` of its
        directory, and when such a put returns. Where the store can, the first put makes both durable at once:
        until then `path` may not be durable, and it is removed if the context ends by an error. Both raise
        what `put_new` and `put_if_absent` do; the first put is PutRefused too when `path` cannot be written.
        """
        ...

    def put_together(self, puts: Sequence[Put]) -> Collection[str]:
        """Put objects with fewer waits than each by itself takes; returns the paths of those of `puts` that
        are there, durable, with all that they rely on. Of two in one directory the second is seen only once
        the first is durable.

        The others may be there or not, and so may, in part, what they rely on: to put each by itself tells.
        None is put where the store has no such way.
        """
        ...

    def make_durable(self, directory: str) -> None:
        """Make the objects directly in `directory` durable, of all processes, and the deletions there.

        A visible object may not be durable yet: its put may be under way, or have failed halfway. A put that
        returns has made all earlier objects of its directory durable. The content of an object of an
        unfinished `put_new` is not made durable.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove the object, if it exists. It may come back after a crash until `make_durable`."""
        ...

    def delete_objects(self, paths: Sequence[str]) -> None:
        """`delete` each of `paths`, in any order; a bucket does so in requests of many (S3: 1,000).

        Where it raises, some may be there still.
        """
        ...

    def check_room(self, data: Data) -> None:
        """Raise StoreFull where `data` finds no room now, and StoreUnavailable. Nothing is left of it."""
        ...

    def remove_temporaries(self, older_than_ms: int) -> int:
        """Remove temporary files of killed puts that are older; returns how many."""
        ...

    def now_ms(self) -> int:
        """The store's own clock, which stamps `modified_ms`: milliseconds since 1970 UTC. Asks the store."""
        ...

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:
        """A text that the object keeps until it is put again, and that no copy of it has; on a disk also that
        of `directories` and of the root.

        A block-wise copy of a disk has the same. Raises ObjectMissing.
        """
        ...

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        """The location of the table at `path` for Delta readers, and their storage options.

        Raises InvalidArgument for a store that only this process sees.
        """
        ...


def open_store(
    url: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    create: bool = True,
    clock: Clock | None = None,
    first: tuple[str, bytes] | None = None,
    durability: Durability = "auto",
) -> Store:
    """The store at a directory, or at an `s3://`, `gs://`, `az://` or `memory://` URL.

    `options` are those of the object store, by the names of delta-rs (`aws_endpoint`, `allow_http` …); they
    win over its environment variables (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` …). Unless `create` is false,
    as for a reader, a missing directory is created, and an object store has to show that it has conditional
    puts. A directory that is created has the object `first`, a path and its data, from its first moment on.
    `durability` says what `put_new_before` may rely on in a directory.
    Raises RootMissing for a directory that is not there, InvalidArgument, StoreUnavailable.
    """
    text = os.fspath(url)
    parts = urlsplit(text) if "://" in text else None
    if parts is None or (parts.scheme == "file" and not parts.netloc):
        path = text if parts is None else unquote(parts.path)
        root = _directory(path, text, create, first)
        ordered = durability == "auto" and keeps_order(root)
        flush = system_flush() if ordered else None
        return LocalStore(root, clock or SystemClock(), options, ordered=ordered, flush=flush)
    if parts.scheme not in _SCHEMES:
        raise InvalidArgument(
            f"the scheme {parts.scheme!r} of {text} is not supported; "
            "use a directory, file:///, s3://, gs://, az:// or memory://"
        )
    from log_tables.store.bucket import ObjectStore  # a user of a directory is spared the import

    store = ObjectStore(text, options or {})
    if create:
        store.check_puts()
    return store


def ensure(store: Store, path: str, data: Data) -> bool:
    """Put an object unless there is one: afterwards there is. Returns False for one that may be another's.

    S3 may say that one is there to racers that all failed. Raises OutcomeUnknown, StoreUnavailable.
    """
    while True:
        try:
            store.put_if_absent(path, data)
        except AlreadyExists:
            with suppress(ObjectMissing):
                store.head(path)
                return False
        else:
            return True


def overlap(one: str, other: str) -> bool:
    """Whether two roots, by their paths or URLs, are the same or one lies inside the other."""
    first, second = f"{_real(one)}/", f"{_real(other)}/"
    return first.startswith(second) or second.startswith(first)


def table_location(url: str, path: str) -> str:
    """The location of the table at `path` for Delta readers, below the root at `url`; no I/O."""
    parts = urlsplit(url)
    return os.path.join(unquote(parts.path), path) if parts.scheme == "file" else f"{url}/{path}"


def requests_are_paid(url: str) -> bool:
    """Whether each request to the store at `url` costs money: those of a cloud do."""
    return urlsplit(url).scheme not in ("", "file", "memory")


def _real(url: str) -> str:
    parts = urlsplit(url if "://" in url else Path(url).absolute().as_uri())
    if parts.scheme == "file":
        return os.path.realpath(unquote(parts.path)).rstrip("/")
    return one_spelling(url).rstrip("/")


def _directory(path: str, text: str, create: bool, first: tuple[str, bytes] | None) -> Path:
    if not path:
        raise InvalidArgument("the root of the tables is empty; name a directory or a URL")
    root = Path(path).absolute()
    if create:
        make_root(root, text, first)
        return root
    try:
        there = is_directory(str(root))
    except OSError as error:
        said = f"the directory {text} cannot be opened"
        raise unusable(
            said, error, "name another, or give this user the permission", InvalidArgument
        ) from None
    if not there:
        raise RootMissing(
            f"there is no directory {text}; name the root of the tables, for a command with --data"
        )
    return root
