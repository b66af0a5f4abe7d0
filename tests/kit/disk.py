"""A disk whose fsyncs are counted and fail when told to, and what of it a power cut leaves.

A name outlasts the cut when its directory was fsynced after it was given, content when its file was; so does
that a name is gone. What was not fsynced may be there or not, each name by itself. A file whose fsync failed
has lost its content for good, whatever a later fsync says (Linux drops what it could not write); a
directory that is fsynced again is whole, as where names are journaled (docs/decisions/0027). On a disk that
keeps order a name outlasts the cut as soon as its file was fsynced under it (docs/decisions/0044).
"""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from log_tables.store.file import Flush, opened
from log_tables.store.objects import TEMPORARY_PREFIX
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash

Kept = Callable[[str], bool]
"""Whether of a path that was not fsynced the cut leaves what was visible."""

Fails = Callable[[int], BaseException | None]
"""What becomes of the n-th fsync, from 1: None when it is done."""


@dataclass(eq=False)
class _File:
    content: bytes | None = None


@dataclass(eq=False)
class _Directory:
    names: "dict[str, _File | _Directory]" = field(default_factory=dict)


class Disk:
    """Directories below `root`, each of them the root of a store. To be closed: it holds what it has seen
    open, so that no other file gets its inode.
    """

    def __init__(
        self,
        root: Path,
        *directories: str,
        fails: Fails = lambda _: None,
        synced: Callable[[], None] = lambda: None,
        ordered: bool = False,
    ) -> None:
        """`synced` is called after every fsync that was done. `ordered` is a disk that keeps order."""
        self.root, self.fails, self._synced, self._ordered = root, fails, synced, ordered
        self.lock = threading.RLock()
        self.syncs = 0
        self.failed = False
        self._known: dict[int, _File | _Directory] = {}
        self._open: list[int] = []
        for name in directories:
            (root / name).mkdir(parents=True)
        self._take_names(self._hold(os.open(root, os.O_RDONLY)))

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def process(self) -> "ProcessSync":
        """The fsync of one process: once it has died in it, nothing is done any more."""
        return ProcessSync(self)

    def sync(self, descriptor: int) -> None:
        """Fsync an open file or directory."""
        with self.lock:
            self._sync(descriptor)

    def flush(self) -> None:
        """Make all durable, as syncfs(2). What it fails for is lost: all files that were never fsynced."""
        with self.lock:
            self.syncs += 1
            failure = self.fails(self.syncs)
            for directory, _, names in os.walk(self.root):
                for name in names:
                    with suppress(FileNotFoundError):  # another thread has just removed it
                        self._take_file(os.path.join(directory, name), failure is None)
                if failure is None:
                    with suppress(FileNotFoundError), opened(directory) as descriptor:
                        self._take_names(descriptor)
            if failure is not None:
                self.failed = True
                raise failure
            self._synced()

    def _take_file(self, path: str, is_whole: bool) -> None:
        if os.stat(path).st_ino not in self._known:
            file = self._hold(os.open(path, os.O_RDONLY))
            self._known[os.fstat(file).st_ino] = _File(None if is_whole else b"")

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        found, failure = os.fstat(descriptor), self.fails(self.syncs)
        self._hold(os.dup(descriptor))
        if stat.S_ISDIR(found.st_mode):
            if failure is None:
                self._take_names(descriptor)
        else:
            self._known.setdefault(found.st_ino, _File(None if failure is None else b""))
            if self._ordered and failure is None:
                self._take_name_of(found.st_ino)
        if failure is not None:
            self.failed = True
            raise failure
        self._synced()

    def _hold(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor

    def _take_names(self, descriptor: int) -> None:
        self._directory(descriptor).names = self._visible(descriptor)

    def _take_name_of(self, inode: int) -> None:
        """Let the name that a file was fsynced under outlast a cut, if its directory's name does."""
        for directory, _, _ in os.walk(self.root):
            with opened(directory) as descriptor:
                for name, item in self._visible(descriptor).items():
                    if item is self._known[inode]:
                        self._directory(descriptor).names[name] = item

    def _visible(self, descriptor: int) -> dict[str, _File | _Directory]:
        seen = {}
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another thread has just removed it
                    seen[entry.name] = self._seen(descriptor, entry)
        return seen

    def _seen(self, descriptor: int, entry: "os.DirEntry[str]") -> _File | _Directory:
        known = self._known.get(entry.inode())
        if entry.is_dir(follow_symlinks=False):
            if known is None:
                return self._directory(self._hold(os.open(entry.name, os.O_RDONLY, dir_fd=descriptor)))
        elif isinstance(known, _File) and known.content is None:
            with open(os.open(entry.name, os.O_RDONLY, dir_fd=descriptor), "rb") as file:
                known.content = file.read()
        return known or _File(b"")  # it was never fsynced

    def _directory(self, descriptor: int) -> _Directory:
        known = self._known.setdefault(os.fstat(descriptor).st_ino, _Directory())
        assert isinstance(known, _Directory)
        return known

    def cut(self, directory: str, kept: Kept = lambda _: False) -> Store:
        """The files of `directory` that would survive a power cut now, in a store of their own."""
        store = open_store("memory://")
        with self.lock:
            for path, content in self._left(self._directory(self._open[0]), "", kept):
                if path.startswith(f"{directory}/"):
                    store.put(path.removeprefix(f"{directory}/"), content)
        return store

    def _left(self, at: _Directory, prefix: str, kept: Kept) -> Iterator[tuple[str, bytes]]:
        for name, item in self._names(at, prefix, kept).items():
            if isinstance(item, _Directory):
                yield from self._left(item, f"{prefix}{name}/", kept)
            elif not name.startswith(TEMPORARY_PREFIX):
                yield f"{prefix}{name}", item.content or b""

    def _names(self, at: _Directory, prefix: str, kept: Kept) -> dict[str, _File | _Directory]:
        visible: dict[str, _File | _Directory] = {}
        with suppress(FileNotFoundError):  # pruned
            visible = self._visible(self._hold(os.open(self.root / prefix, os.O_RDONLY)))
        chosen = {}
        for name in sorted({*at.names, *visible}):
            before, now = at.names.get(name), visible.get(name)
            item = before if before is now or not kept(f"{prefix}{name}") else now
            if item is not None:
                chosen[name] = item
        return chosen


class ProcessSync:
    """The fsync of a process on a disk, and its flush of all."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._dead = disk, False

    def __call__(self, descriptor: int) -> None:
        self._do(lambda: self._disk.sync(descriptor))

    @property
    def flush(self) -> Flush:
        return _Flush(self._do, self._disk)

    def _do(self, act: Callable[[], None]) -> None:
        with self._disk.lock:  # a thread that has waited for it may be one of the dead
            if self._dead:
                raise Crash
            try:
                act()
            except Crash:
                self._dead = True
                raise


class _Flush:
    def __init__(self, do: Callable[[Callable[[], None]], None], disk: Disk) -> None:
        self._do, self._disk = do, disk

    def is_cheap(self) -> bool:
        return True

    def __call__(self, descriptor: int) -> None:  # noqa: ARG002 -- there is one file system
        self._do(self._disk.flush)


def once(number: int) -> Fails:
    """The n-th fsync fails, those after it do not."""
    return lambda n: _error() if n == number else None


def from_then_on(number: int) -> Fails:
    """The n-th fsync fails, and all after it."""
    return lambda n: _error() if n >= number else None


def death(number: int) -> Fails:
    """The process dies in the n-th fsync, which is not done."""
    return lambda n: Crash() if n == number else None


def _error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))
