"""Room of a disk that is kept for what makes room: retention, deletions, settings, and what groups commit.

It is files of the store's own, which no listing shows, and that are really allocated: their bytes are random,
so that no file system makes them smaller. They are many, so that they give inodes back, too, and a commit
takes little of them. Whoever is refused for lack of room removes some and tries again; so do several
processes at once, each with what it removed or another did. A duty of the gateways makes them again.
"""

import os
from contextlib import suppress

from log_tables.clock import Clock
from log_tables.store.file import opened, sync
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
        if not size_bytes:
            return 0
        try:
            with opened(self._directory) as place:
                return sum(each for name in _names() if _size(place, name) < each)
        except FileNotFoundError:
            return PIECES * each

    def make(self, size_bytes: int, root: int) -> None:
        """Have `size_bytes` in reserve, durable on return; what is missing is made, and what is more goes.

        `root` is the open directory: whatever has its path by now is left alone. Raises OSError.
        """
        if size_bytes:
            with suppress(FileExistsError):
                os.mkdir(RESERVE, 0o700, dir_fd=root)
        try:
            place = os.open(RESERVE, os.O_RDONLY, dir_fd=root)
        except FileNotFoundError:
            if size_bytes:
                raise
            return
        try:
            self._make(size_bytes, place)
        finally:
            os.close(place)

    def give_up(self, size_bytes: int, share: float) -> bool:
        """Remove what makes room for `size_bytes`, as long as more than 1 - `share` of a whole reserve is
        left; returns whether it removed any.
        """
        kept = round(PIECES * (1 - share))
        removed = 0
        with suppress(OSError), opened(self._directory) as place:
            there = _there(place)
            for name in there[: max(0, len(there) - kept)]:
                size = _size(place, name)
                _remove(place, name)
                removed += size
                if removed >= size_bytes:
                    break
        return removed > 0

    def _make(self, size_bytes: int, place: int) -> None:
        each = _each(size_bytes) if size_bytes else 0
        for name in _there(place):
            if _size(place, name) > each:
                _shrink(place, name, each)
        missing = [name for name in _names() if _size(place, name) < each]
        for name in missing:
            self._fill(place, name, each)
        if missing:
            sync(place)

    def _fill(self, place: int, name: str, size_bytes: int) -> None:
        """Make one file; another process may do so at the same time, or remove it."""
        file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=place)
        try:
            left = memoryview(bytes.fromhex(self._clock.random_hex(2 * size_bytes)))
            while left:
                left = left[os.write(file, left) :]
            sync(file)
        except OSError:
            _remove(place, name)
            raise
        finally:
            os.close(file)


def _there(place: int) -> list[str]:
    return sorted(name for name in os.listdir(place) if name.startswith(TEMPORARY_PREFIX))


def _size(place: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=place).st_size
    except FileNotFoundError:
        return 0


def _shrink(place: int, name: str, size_bytes: int) -> None:
    if not size_bytes:
        _remove(place, name)
        return
    with suppress(FileNotFoundError):  # another process gave it up
        file = os.open(name, os.O_WRONLY, dir_fd=place)
        try:
            os.ftruncate(file, size_bytes)
        finally:
            os.close(file)


def _remove(place: int, name: str) -> None:
    with suppress(OSError):  # it is gone, or it is removed another time
        os.unlink(name, dir_fd=place)


def _each(size_bytes: int) -> int:
    return max(_LEAST_BYTES, size_bytes // PIECES)


def _names() -> list[str]:
    return [f"{TEMPORARY_PREFIX}{number:02}" for number in range(PIECES)]
