"""A disk in memory, and the system calls by which log_tables/store uses one.

What a power cut leaves is as in tests/kit/disk.py: content that was fsynced, and names whose directory was;
on a disk that keeps order also names whose file was. Anything else is left or not, each name by itself.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from log_tables.store import file as store_file
from log_tables.store import local as store_local
from tests.simulation.chance import Chance
from tests.simulation.scheduler import EPOCH_US, Process, Scheduler

ROOT = "/simulated"

Fault = Callable[[str, str, Process | None], int]
"""The error number in which a call, on a path, of a process ends before it does anything; 0: none."""


@dataclass(eq=False, slots=True)
class _File:
    number: int
    content: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None
    lost: bool = False
    changed_us: int = 0
    links: int = 0


@dataclass(eq=False, slots=True)
class _Directory:
    number: int
    names: "dict[str, _Node]" = field(default_factory=dict)
    durable: "dict[str, _Node]" = field(default_factory=dict)
    changed_us: int = 0


_Node = _File | _Directory


class Disk:
    """The disk of a world. Each call of a thread is a point."""

    def __init__(self, scheduler: Scheduler, ordered: bool, capacity: int = 1 << 40) -> None:
        """`ordered` is a disk that keeps order."""
        self._scheduler, self.ordered, self.capacity = scheduler, ordered, capacity
        self.fault: Fault = lambda _call, _path, _process: 0
        self.delay: Callable[[str], float] = lambda _call: 0.0
        self.lost: Callable[[str], bool] = lambda _call: False
        self.used = 0
        self._numbers = 1
        self._open: dict[int, tuple[_Node, str, Process | None]] = {}
        self._descriptors = 1_000
        self._root = _Directory(1)

    def calm(self) -> None:
        """Let it work as it should."""
        self.fault, self.delay = lambda _call, _path, _process: 0, lambda _call: 0.0
        self.lost, self.capacity = lambda _call: False, 1 << 40

    def make(self, path: str, first: tuple[str, bytes] | None = None) -> None:
        """Make a directory, durable, with a file `first` in it, unless it is there."""
        parent = self._root
        *above, last = _names(path)
        for name in above:
            node = parent.names[name]
            assert isinstance(node, _Directory)
            parent = node
        if last in parent.names:
            return
        made = parent.names[last] = parent.durable[last] = _Directory(
            self._number(), changed_us=self._now_us()
        )
        if first is not None:
            name, data = first
            made.names[name] = made.durable[name] = _File(
                self._number(), bytearray(data), bytes(data), changed_us=self._now_us(), links=1
            )
            self.used += len(data)

    # A power cut.

    def cut(self, chance: Chance) -> None:
        """Cut the power: what was not durable is left by `chance`."""
        self._root = self._left(self._root, chance)
        self._open.clear()
        self.used = sum(len(each.content) for each in self._files(self._root))

    def _left(self, before: _Directory, chance: Chance) -> _Directory:
        left = _Directory(before.number, changed_us=before.changed_us)
        for name in sorted({*before.names, *before.durable}):
            now, was = before.names.get(name), before.durable.get(name)
            node = was if now is was or chance.random() < 0.5 else now
            if isinstance(node, _Directory):
                left.names[name] = self._left(node, chance)
            elif isinstance(node, _File):
                whole = node.durable if node.durable is not None else b""
                if node.durable is None and not node.lost:
                    whole = bytes(node.content[: chance.randint(0, len(node.content))])
                left.names[name] = _File(
                    node.number, bytearray(whole), bytes(whole), changed_us=node.changed_us, links=1
                )
        left.durable = dict(left.names)
        return left

    def _files(self, directory: _Directory) -> Iterator[_File]:
        for node in directory.names.values():
            if isinstance(node, _Directory):
                yield from self._files(node)
            else:
                yield node

    # Calls.

    def _begin(self, call: str, path: str) -> None:
        scheduler = self._scheduler
        thread = scheduler.current
        scheduler.point(f"{call} {path.removeprefix(ROOT)}")
        seconds = self.delay(call)
        if seconds and thread is not None:
            scheduler.pause(seconds)
        number = self.fault(call, path, None if thread is None else thread.process)
        if number:
            scheduler.note("disk", f"{call} {path} ends in {errno.errorcode[number]}")
            raise _error(number, path)

    def _end(self, call: str, path: str) -> None:
        """After a call that was done: its answer may be an error, as over NFS."""
        if self.lost(call):
            self._scheduler.note("disk", f"the answer to {call} {path} is lost")
            raise _error(errno.EIO, path)

    def _now_us(self) -> int:
        return EPOCH_US + self._scheduler.now_us

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _find(self, path: str) -> _Node:
        node: _Node = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                raise _error(errno.ENOTDIR, path)
            if name not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent = self._find(os.path.dirname(path))
        if not isinstance(parent, _Directory):
            raise _error(errno.ENOTDIR, path)
        return parent, os.path.basename(path)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # noqa: ARG002 -- as the system's
        self._begin("create" if flags & os.O_CREAT else "open", path)
        if flags & os.O_CREAT:
            parent, name = self._parent(path)
            if name in parent.names:
                raise _error(errno.EEXIST, path)
            node: _Node = _File(self._number(), changed_us=self._now_us(), links=1)
            parent.names[name] = node
        else:
            node = self._find(path)
        self._descriptors += 1
        thread = self._scheduler.current
        self._open[self._descriptors] = node, path, None if thread is None else thread.process
        return self._descriptors

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def write(self, descriptor: int, data: Any) -> int:
        node, path, _ = self._open[descriptor]
        assert isinstance(node, _File)
        size = len(data)
        if self.used + size > self.capacity:
            raise _error(errno.ENOSPC, path)
        self.used += size
        node.content += data
        node.changed_us = self._now_us()
        return size

    def pread(self, descriptor: int, length: int, start: int) -> bytes:
        node, path, _ = self._open[descriptor]
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return bytes(node.content[start : start + length])

    def fsync(self, descriptor: int) -> None:
        node, path, _ = self._open[descriptor]
        try:
            self._begin("fsync", path)
        except OSError:
            if isinstance(node, _File):
                node.lost = node.durable is None
            raise
        if isinstance(node, _Directory):
            node.durable = dict(node.names)
            return
        if not node.lost:
            node.durable = bytes(node.content)
        if self.ordered:
            parent, name = self._parent(path)
            if parent.names.get(name) is node:
                parent.durable[name] = node
        self._end("fsync", path)

    def fstat(self, descriptor: int) -> SimpleNamespace:
        return _stat(self._open[descriptor][0])

    def stat(self, path: str | int) -> SimpleNamespace:
        return self.fstat(path) if isinstance(path, int) else _stat(self._find(path))

    def statvfs(self, path: str) -> SimpleNamespace:
        self._find(path)
        return SimpleNamespace(f_fsid=1)

    def link(self, source: str, target: str) -> None:
        self._begin("link", target)
        node = self._find(source)
        parent, name = self._parent(target)
        if name in parent.names:
            raise _error(errno.EEXIST, target)
        assert isinstance(node, _File)
        parent.names[name] = node
        node.links += 1
        self._end("link", target)

    def replace(self, source: str, target: str) -> None:
        self._begin("replace", target)
        before, old = self._parent(source)
        parent, name = self._parent(target)
        parent.names[name] = before.names.pop(old)

    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        del parent.names[name]
        node.links -= 1
        if not node.links:
            self.used -= len(node.content)
        self._end("unlink", path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:  # noqa: ARG002 -- as the system's
        self._begin("mkdir", path)
        parent, name = self._parent(path)
        if name in parent.names:
            raise _error(errno.EEXIST, path)
        parent.names[name] = _Directory(self._number(), changed_us=self._now_us())

    def rmdir(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, path)
        if node.names:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        del parent.names[name]

    @contextmanager
    def scandir(self, path: str) -> Iterator[Iterator["_Entry"]]:
        self._begin("scandir", path)
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, path)
        yield iter([_Entry(name, each) for name, each in node.names.items()])

    def walk(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        try:
            node = self._find(path)
        except OSError:
            return
        if isinstance(node, _Directory):
            directories = [name for name, each in node.names.items() if isinstance(each, _Directory)]
            yield path, directories, [name for name in node.names if name not in directories]
            for name in directories:
                yield from self.walk(f"{path}/{name}")

    def isdir(self, path: str) -> bool:
        try:
            return isinstance(self._find(path), _Directory)
        except OSError:
            return False


class _Entry:
    """One name, as scandir has it."""

    def __init__(self, name: str, node: _Node) -> None:
        self.name, self._node = name, node

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 -- as the system's
        return isinstance(self._node, _Directory)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        return isinstance(self._node, _File)

    def stat(self) -> SimpleNamespace:
        if isinstance(self._node, _File) and not self._node.links:
            raise _error(errno.ENOENT, self.name)
        return _stat(self._node)


def _stat(node: _Node) -> SimpleNamespace:
    is_file = isinstance(node, _File)
    return SimpleNamespace(
        st_mode=(stat.S_IFREG if is_file else stat.S_IFDIR) | 0o600,
        st_size=len(node.content) if isinstance(node, _File) else 0,
        st_mtime_ns=node.changed_us * 1_000,
        st_ino=node.number,
        st_dev=1,
        st_nlink=node.links if isinstance(node, _File) else 1,
    )


def _names(path: str) -> list[str]:
    assert path == ROOT or path.startswith(f"{ROOT}/"), f"{path} is not on the simulated disk"
    return [name for name in path.removeprefix(ROOT).split("/") if name]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class _System(ModuleType):
    """Python's `os` for the modules of the store."""

    def __init__(self, disk: Disk) -> None:
        super().__init__("os")
        for name in (
            "open",
            "close",
            "write",
            "pread",
            "fsync",
            "fstat",
            "stat",
            "statvfs",
            "link",
            "replace",
        ):
            setattr(self, name, getattr(disk, name))
        for name in ("unlink", "mkdir", "rmdir", "scandir", "walk"):
            setattr(self, name, getattr(disk, name))
        self.path = SimpleNamespace(
            **{name: getattr(os.path, name) for name in ("join", "dirname", "basename", "normpath")},
            isdir=disk.isdir,
        )

    def __getattr__(self, name: str) -> Any:
        return {**_CONSTANTS}[name]


_CONSTANTS: Mapping[str, Any] = {
    name: getattr(os, name) for name in ("O_RDONLY", "O_WRONLY", "O_CREAT", "O_EXCL", "strerror", "fspath")
}


@contextmanager
def mounted(disk: Disk) -> Iterator[None]:
    """Let the stores of directories be on `disk`."""
    system = _System(disk)
    with patch.object(store_file, "os", system), patch.object(store_local, "os", system):
        yield
