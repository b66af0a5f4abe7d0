"""Room of a disk that is kept for what makes room: retention, deletions, settings, and what groups commit.

It is files of the store's own, which no listing shows, and that are really allocated: their bytes are random,
so that no file system makes them smaller. They are many, so that they give inodes back, too, and a commit
takes little of them. Whoever is refused for lack of room removes some and tries again; so do several
processes at once, each with what it removed or another did. A duty of the gateways makes them again.
"""

import os
from contextlib import suppress

from log_tables.clock import Clock
from log_tables.store.file import opened, sync, unlink
from log_tables.store.objects import TEMPORARY_PREFIX

RESERVE = f"{TEMPORARY_PREFIX}reserve"
"""The directory of the reserve, below the root."""

PIECES = 64
"""How many files a whole reserve has."""

_LEAST_BYTES = 4_096
"""What a file takes at least."""


class Reserve:
    """The reserve of the disk at the directory `root`. Thread-safe, and for any number of processes."""

    def __init__(self, root: str, clock: Clock) -> None:
        self._directory, self._clock = os.path.join(root, RESERVE), clock

    def missing_bytes(self, size_bytes: int) -> int:
        """How much room it takes to have `size_bytes` in reserve. Raises OSError."""
        each = _each(size_bytes)
        return sum(each for name in _names() if self._size(name) < each) if size_bytes else 0

    def make(self, size_bytes: int) -> None:
        """Have `size_bytes` in reserve, durable on return; what is missing is made, and what is more goes.
        Raises OSError.
        """
        self._shrink(_each(size_bytes) if size_bytes else 0)
        if not self.missing_bytes(size_bytes):
            return
        each = _each(size_bytes)
        with suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        for name in _names():
            if self._size(name) < each:
                self._make(name, each)
        with opened(self._directory) as names:
            sync(names)

    def give_up(self, size_bytes: int, share: float) -> bool:
        """Remove what makes room for `size_bytes`, as long as more than 1 - `share` of a whole reserve is
        left; returns whether it removed any.
        """
        kept = round(PIECES * (1 - share))
        there = self._there()
        removed = 0
        for name in there[: max(0, len(there) - kept)]:
            file = os.path.join(self._directory, name)
            size = self._size(name)
            unlink(file)
            removed += size
            if removed >= size_bytes:
                break
        return removed > 0

    def _shrink(self, each: int) -> None:
        for name in self._there():
            if self._size(name) > each:
                path = os.path.join(self._directory, name)
                with suppress(FileNotFoundError):  # another process gave it up
                    os.truncate(path, each) if each else unlink(path)

    def _there(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._directory) if name.startswith(TEMPORARY_PREFIX))
        except OSError:
            return []

    def _size(self, name: str) -> int:
        try:
            return os.stat(os.path.join(self._directory, name)).st_size
        except FileNotFoundError:
            return 0

    def _make(self, name: str, size_bytes: int) -> None:
        """Make one file; another process may do so at the same time, or remove it."""
        path = os.path.join(self._directory, name)
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            left = memoryview(bytes.fromhex(self._clock.random_hex(2 * size_bytes)))
            while left:
                left = left[os.write(file, left) :]
            sync(file)
        except OSError:
            unlink(path)
            raise
        finally:
            os.close(file)


def _each(size_bytes: int) -> int:
    return max(_LEAST_BYTES, size_bytes // PIECES)


def _names() -> list[str]:
    return [f"{TEMPORARY_PREFIX}{number:02}" for number in range(PIECES)]
