"""A directory as a store: POSIX files whose names appear whole and durable, or not at all.

A put writes a temporary file in the directory of the final name, fsyncs it, gives it the name (`link()`,
which fails when the name is taken; `rename()` to replace) and fsyncs the directory. Where the file system
keeps order, two puts of which one relies on the other wait for both files at once, and for one directory
(docs/decisions/0044-a-segment-and-its-commit-are-fsynced-at-once.md,
docs/decisions/0109-a-commit-fsyncs-one-directory.md). So a name has its whole
content from the first moment on, but can be seen before it is durable: a process that finds it calls
`make_durable`. A file whose fsync failed is never used; a directory is fsynced again
(docs/decisions/0027-visible-is-not-durable.md). Errors name objects by their path under the root and never by
a path of the machine.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import mkdtemp
from typing import TypeVar

from log_tables.clock import Clock
from log_tables.errors import InvalidArgument, LakelogError, ObjectMissing, StoreFull, StoreUnavailable
from log_tables.layout import HOME_ANCHOR, NO_RESERVE, is_secret, reserve_share
from log_tables.store.file import (
    AtOnce,
    CallWorker,
    Flush,
    Identity,
    NewFile,
    exists,
    file_system_id,
    identity_of,
    is_directory,
    link,
    modified_ms,
    older,
    opened,
    read,
    reading,
    refused,
    refusing,
    remove,
    sync,
    unlink,
    unsure,
    unusable,
)
from log_tables.store.objects import (
    TEMPORARY_PREFIX,
    Data,
    ObjectInfo,
    Put,
    PutIfAbsent,
    check_directory,
    check_path,
)
from log_tables.store.reserve import RESERVE, Reserve

T = TypeVar("T")

_PROBE = "room"
"""The name, below the root, of what looks for room, and of which there are temporary files alone."""

_NAMES_BYTES = 32_768
"""What a file takes besides its data: parts of blocks, and new directories, each at most one block."""

PRUNED_MAX = 10
"""How often a put re-creates its directory, which a delete that left it empty has just removed."""


class LocalStore:
    """A directory of a POSIX file system that has hard links and an honest fsync. Thread-safe."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        options: Mapping[str, str] | None = None,
        sync: Callable[[int], None] = sync,
        ordered: bool = False,
        at_once: AtOnce | None = None,
        flush: Flush | None = None,
    ) -> None:
        """The store at `root`, the absolute path of a directory that exists. It ignores its options. Raises
        InvalidArgument, StoreUnavailable.

        `ordered` says that on its file system the name of a new file is durable once its content is. `flush`
        is for objects that are put together, if there is a way.
        """
        self.url = root.as_uri()
        self.options: Mapping[str, str] = dict(options or {})
        self._root = str(root)
        self._clock = clock
        self._sync = sync
        self._ordered = ordered
        self._at_once = at_once or CallWorker().both
        self._flush = flush
        self._durable: dict[str, Identity] = {}
        try:
            self._identity, self._file_system = identity_of(self._root), file_system_id(self._root)
        except OSError as error:
            raise unusable("the root cannot be opened", error, "name another", InvalidArgument) from None
        self._anchor: str | None = None
        self._reserve = Reserve(self._root, clock)

    @property
    def root(self) -> str:
        """The directory."""
        return self._root

    def get(self, path: str) -> bytes:
        with reading(path), opened(self._locate(path)) as file:
            return read(file, 0, os.fstat(file).st_size)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with reading(path), opened(self._locate(path)) as file:
            return read(file, start, length)

    def head(self, path: str) -> ObjectInfo:
        with reading(path):
            found = os.stat(self._locate(path))
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(path)
            return ObjectInfo(path, found.st_size, modified_ms(found))

    def is_private(self, directory: str) -> bool:
        """Whether its owner alone can look into `directory`. Raises ObjectMissing, StoreUnavailable."""
        with reading(directory):
            return not os.stat(self._locate(directory)).st_mode & (stat.S_IRWXG | stat.S_IRWXO)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return (item for item in self._walk(check_directory(prefix)) if item.path > start_after)

    def list_dirs(self, prefix: str) -> Sequence[str]:
        directory = check_directory(prefix)
        entries = (entry for entry in self._scan(directory) if entry.is_dir(follow_symlinks=False))
        paths = sorted(_join(directory, entry.name) for entry in entries)
        return [path for path in paths if any(True for _ in self._walk(path))]

    def _walk(self, directory: str) -> Iterator[ObjectInfo]:
        """Every object below `directory`, ordered by path; of a million files only the names are held."""
        entries = sorted(self._scan(directory), key=_order, reverse=True)
        while entries:
            entry = entries.pop()  # it keeps the state of the file, so it is freed
            path = _join(directory, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path)
            elif entry.is_file() and not entry.name.startswith(TEMPORARY_PREFIX):
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since
                yield ObjectInfo(path, found.st_size, modified_ms(found))

    def _scan(self, directory: str) -> Sequence[os.DirEntry[str]]:
        try:
            with reading(directory), os.scandir(os.path.join(self._root, directory)) as entries:
                return list(entries)
        except ObjectMissing:
            return []

    def put(self, path: str, data: Data) -> None:
        self._with_room(path, data, lambda: self._put(path, data))

    def _put(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as temporary:
            with refusing(path):
                temporary.make_durable()
            with unsure(path):
                final = _beside(temporary, path)
                os.replace(temporary.path, final)
                self._sync_names(os.path.dirname(final))

    def put_if_absent(self, path: str, data: Data) -> None:
        self._with_room(path, data, lambda: self._put_if_absent(path, data))

    def _put_if_absent(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as temporary:
            with refusing(path):
                temporary.make_durable()
            with unsure(path):
                self._sync_names(self._give_name(temporary, path))

    def put_new(self, path: str, data: Data) -> None:
        self._with_room(path, data, lambda: self._put_new(path, data))

    def _put_new(self, path: str, data: Data) -> None:
        with closing(self._new(path, data)) as new:
            with refusing(path):
                new.make_durable()
            with unsure(path, StoreUnavailable):  # nobody else knows the name
                self._sync_names(os.path.dirname(new.path))

    @contextmanager
    def put_new_before(self, path: str, data: Data) -> Iterator[PutIfAbsent]:
        if not self._keeps_order(os.path.dirname(self._locate(path))):
            self.put_new(path, data)
            yield partial(self._put_if_absent_for, path)
            return
        with closing(self._with_room(path, data, lambda: self._new(path, data))) as first:
            try:
                yield partial(self._put_after, first, path)
            except Exception:
                if not first.durable:
                    first.remove()  # nothing names it
                raise

    def _put_if_absent_for(self, first: str, path: str, data: Data) -> None:
        """Put an object that relies on the object `first`, and takes no more of the reserve than that."""
        self._with_room(first, data, lambda: self._put_if_absent(path, data))

    def _put_after(self, first: NewFile, name: str, path: str, data: Data) -> None:
        """Put an object if absent, which is seen only once the content of `first`, the object `name`, and its
        own are durable.

        The name of `first` is durable with its content then, as the file system keeps that order.
        """
        directory = os.path.dirname(first.path)
        if first.durable:  # the put is repeated
            with unsure(path, StoreUnavailable):
                self._sync_names(directory)
            self._put_if_absent_for(name, path, data)
        else:
            self._with_room(name, data, lambda: self._put_both(first, path, data))

    def _put_both(self, first: NewFile, path: str, data: Data) -> None:
        with self._temporary(path, data) as temporary:
            with refusing(path):
                self._at_once(first.make_durable, temporary.make_durable)
            with unsure(path):
                self._sync_names(self._give_name(temporary, path))

    def put_together(self, puts: Sequence[Put]) -> Collection[str]:
        durable: list[str] = []
        if self._flush is None or not self._flush.is_cheap():
            return durable
        with suppress(LakelogError, OSError), ExitStack() as files:  # each by itself says why
            root = files.enter_context(opened(self._root))  # before all: what is lost since is told
            contents = []
            for put in puts:
                for path, data in put.new:
                    self._new(path, data).close()
                contents.append(files.enter_context(self._temporary(put.path, put.data)))
            self._flush(root)
            for turn in _in_turns(puts):
                for number in turn:
                    self._give_name(contents[number], puts[number].path)
                self._flush(root)
                durable += [puts[number].path for number in turn]
        return durable

    def _keeps_order(self, directory: str) -> bool:
        """Whether the name of a new file in `directory` is durable with its content.

        It is if the root's file system keeps that order, holds the directory, and has its name durable.
        """
        known = self._durable.get(directory) if self._ordered else None
        with suppress(OSError):
            return known is not None and known[0] == self._identity[0] and known == identity_of(directory)
        return False

    def _give_name(self, temporary: NewFile, path: str) -> str:
        """Let a durable temporary file have the name of `path`; returns their directory."""
        final = _beside(temporary, path)
        error = link(temporary.path, final)
        if isinstance(error, FileExistsError):
            raise exists(path)
        if error is not None:
            raise refused(path, error)
        return os.path.dirname(final)

    def _with_room(self, path: str, data: Data, put: Callable[[], T]) -> T:
        """Put `data`, and again with more room as long as some of the reserve can be given up for `path`."""
        last = False
        while True:
            try:
                return put()
            except StoreFull:
                share = reserve_share(path)
                if last or share == NO_RESERVE:
                    raise
            # Once more also where another process has just given up what was left.
            last = not self._reserve.give_up(_taken_by(data), share)

    def check_room(self, data: Data) -> None:
        """Raise StoreFull where `data` finds no room now, and StoreUnavailable. Nothing is left of it."""
        with self._temporary(_PROBE, data) as temporary, refusing(_PROBE):
            temporary.make_durable()

    def reserve(self, size_bytes: int, free_bytes: int) -> bool:
        """Have `size_bytes` in reserve, unless making what is missing would leave less than `free_bytes`;
        returns whether they are there. Raises StoreFull, StoreUnavailable.
        """
        with refusing(RESERVE), opened(self._root) as root:  # before the look: it has many files to make
            self._check_root()
            missing = self._reserve.missing_bytes(size_bytes)
            if missing and disk_usage(self._root).free < missing + free_bytes:
                return False
            self._reserve.make(size_bytes, root)
        return True

    def make_durable(self, directory: str) -> None:
        place = os.path.join(self._root, check_directory(directory))
        with unsure(directory or "the root", StoreUnavailable):
            while place != self._root and not os.path.isdir(place):
                place = os.path.dirname(place)  # it was pruned: its parent says that it is gone
            self._sync_names(place)

    def _sync_names(self, directory: str) -> None:
        """Make the names in `directory` durable, and once in this process its own name and those above it.

        Another process may have created the directory and died before its fsync.
        """
        with opened(directory) as names:
            self._sync(names)
            identity = identity_of(names)
        if directory != self._root and self._durable.get(directory) != identity:
            self._sync_names(os.path.dirname(directory))
            self._durable[directory] = identity

    @contextmanager
    def _temporary(self, path: str, data: Data) -> Iterator[NewFile]:
        """A temporary file with `data` in the directory of `path`; it is gone in the end."""
        with refusing(path):
            temporary = self._create(path, TEMPORARY_PREFIX + self._clock.unique_id(), data)
        try:
            yield temporary
        finally:
            temporary.close()
            temporary.remove()

    def _new(self, path: str, data: Data) -> NewFile:
        """The file of `path`, which was absent, with `data`. To be closed."""
        with refusing(path):
            try:
                return self._create(path, "", data)
            except FileExistsError:
                raise exists(path) from None

    def _create(self, path: str, name: str, data: Data) -> NewFile:
        """Create the file of `path`, or one called `name` in its directory, with `data`."""
        for attempt in range(PRUNED_MAX):
            try:
                final = self._place(path)
                file = os.path.join(os.path.dirname(final), name) if name else final
                return NewFile(file, data, self._sync, 0o600 if is_secret(path) else 0o666)
            except FileNotFoundError:
                # A delete has pruned the directory, empty for a moment, between making and using it.
                if attempt == PRUNED_MAX - 1:
                    raise
        raise AssertionError("the loop returns or raises")

    def _place(self, path: str) -> str:
        """The file of `path`; creates the directories above it."""
        final = self._locate(path)
        directory = os.path.dirname(final)
        self._check_root()
        if not os.path.isdir(directory):
            self._make_directories(os.path.dirname(path), 0o700 if is_secret(path) else 0o777)
        return final

    def _make_directories(self, path: str, mode: int) -> None:
        """Make the directory `path` and those above it. `os.makedirs` gives its `mode` to the last alone."""
        place = self._root
        for name in path.split("/"):
            place = os.path.join(place, name)
            with suppress(FileExistsError):  # if it is a file, opening a file inside of it fails
                os.mkdir(place, mode)

    def _check_root(self) -> None:
        """Raise OSError unless the root is still the directory that was opened.

        A lost mount leaves an empty directory, in which a log would begin again. If the root was restored
        from a backup while it was open, our next version would follow no other. A network mount that expired
        and came back has another device, and the same root with the same anchor. A disk that was changed for
        another one may have the same device and inode, and has another file system.
        """
        now, file_system = identity_of(self._root), file_system_id(self._root)
        if (now, file_system) == (self._identity, self._file_system):
            if self._anchor is None:
                self._anchor = self._anchor_now()
            return
        same_inode = now[1] == self._identity[1]
        if not same_inode or self._anchor is None or self._anchor != self._anchor_now():
            raise OSError(errno.ESTALE, "the root is not the directory that was opened")
        self._identity, self._file_system = now, file_system

    def _anchor_now(self) -> str | None:
        with suppress(ObjectMissing, StoreUnavailable):
            return self.identity(HOME_ANCHOR)
        return None

    def delete(self, path: str) -> None:
        file = self._locate(path)
        if remove(path, file):
            self._prune(os.path.dirname(file))

    def delete_objects(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def _prune(self, directory: str) -> None:
        """Remove directories that became empty: an object store has none."""
        while directory != self._root:
            try:
                os.rmdir(directory)
            except OSError:
                return
            self._durable.pop(directory, None)
            directory = os.path.dirname(directory)

    def remove_temporaries(self, older_than_ms: int) -> int:
        """Remove the temporary files of killed puts; returns how many."""
        horizon = self.now_ms() - older_than_ms
        removed = 0
        for directory, directories, names in os.walk(self._root):
            if directory == self._root and RESERVE in directories:
                directories.remove(RESERVE)
            for name in names:
                if name.startswith(TEMPORARY_PREFIX) and older(
                    file := os.path.join(directory, name), horizon
                ):
                    unlink(file)
                    removed += 1
            self._prune(directory)
        return removed

    def now_ms(self) -> int:
        """The time that the file system stamps on a file: that of another machine if it is remote."""
        try:
            return self._with_room(_PROBE, b"", self._now_ms)
        except StoreFull:  # a vacuum needs the time to free inodes
            with refusing(_PROBE):
                os.utime(self._root)
                return modified_ms(os.stat(self._root))

    def _now_ms(self) -> int:
        name = TEMPORARY_PREFIX + self._clock.unique_id()
        probe = os.path.join(self._root, name)
        try:
            with refusing(name):
                os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                return modified_ms(os.stat(probe))
        finally:
            unlink(probe)

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:
        file = self._locate(path)
        with reading(path):
            looked_at = (self._root, os.path.dirname(file), file, *map(self._locate, directories))
            inodes = [os.stat(each).st_ino for each in looked_at]
            modified_ns = os.stat(file).st_mtime_ns
        # No device: a mount has another one tomorrow. Nor the time of an inode's last change: a container may
        # set the owner of every file of a volume each time it mounts it.
        return " ".join(map(str, (*inodes, modified_ns)))

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        return self._locate(path), {}

    def _locate(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))


def make_root(root: Path, name: str, first: tuple[str, bytes] | None = None) -> None:
    """Create the directory `root`, durable and readable by its owner alone. Raises InvalidArgument,
    StoreUnavailable.

    `name` is the name that the user gave. The name of a directory that exists is made durable too, as the
    process that created it may have died before its fsync. A directory above that this user cannot read was
    not created by this user. A new directory has the object `first`, a name and its data, from its first
    moment on.
    """
    try:
        missing = [directory for directory in (root, *root.parents) if not is_directory(str(directory))]
        with suppress(PermissionError):
            _sync_made(missing[-1].parent if missing else root)
        for directory in reversed(missing):
            # A reader of the metadata log can pose as a gateway, so only the owner can read the root.
            if directory == root and first is not None:
                _make_with(root, *first)
            else:
                directory.mkdir(0o700 if directory == root else 0o777, exist_ok=True)
            _sync_name(directory)
    except OSError as error:
        said = f"the directory {name} cannot be created, or its name made durable"
        raise unusable(said, error, "name another", InvalidArgument) from None


def _make_with(root: Path, path: str, data: bytes) -> None:
    """Make the directory `root` with a file in it, both at once, unless another process creates it first."""
    made = Path(mkdtemp(prefix=TEMPORARY_PREFIX, dir=root.parent))  # its owner's, as a root is
    try:
        with closing(NewFile(str(made / path), data, sync)) as new:
            new.make_durable()
        _sync_name(made / path)
        with suppress(FileExistsError):
            os.rename(made, root)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
    finally:
        rmtree(made, ignore_errors=True)


def _sync_made(directory: Path) -> None:
    """Make the name of an existing directory durable, unless it is a mount."""
    if not directory.is_mount():
        _sync_name(directory)


def _sync_name(directory: Path) -> None:
    with opened(str(directory.parent)) as parent:
        sync(parent)


def _beside(temporary: NewFile, path: str) -> str:
    """The file of `path`, in whose directory the temporary one is."""
    return os.path.join(os.path.dirname(temporary.path), os.path.basename(path))


def _taken_by(data: Data) -> int:
    """The bytes of a disk that a file with `data` takes at most, and the names on the way to it."""
    return memoryview(data).nbytes + _NAMES_BYTES


def _order(entry: os.DirEntry[str]) -> str:
    """The key that sorts directory entries by the paths below them."""
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _in_turns(puts: Sequence[Put]) -> Iterator[Sequence[int]]:
    """The numbers of the first puts in their directories, then those of the second ones, and so on."""
    turns: list[list[int]] = []
    before: dict[str, int] = {}
    for number, put in enumerate(puts):
        directory = os.path.dirname(put.path)
        turn = before[directory] = before.get(directory, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(number)
    yield from turns
