"""Files of a local disk: calls of the operating system, two at once if need be, and what their errors say.

An error names an object by its path under the root and never by a path of the machine.
"""

import ctypes
import errno
import fcntl
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from log_tables.errors import (
    AlreadyExists,
    InvalidRequest,
    LakelogError,
    ObjectMissing,
    OutcomeUnknown,
    PutRefused,
    StoreFull,
    StoreUnavailable,
)
from log_tables.store.objects import Data

Call = Callable[[], None]
AtOnce = Callable[[Call, Call], None]
"""Makes two calls, in any order; on return both have returned. Raises what one of them has raised. A call
may be made once more."""


class CallWorker:
    """A thread that makes one of two calls, while the caller makes the other. Thread-safe.

    It does so for one caller at a time. The others make their calls one after the other: where many work at
    once the disk is busy anyway, and a change of threads costs some 30 µs of a processor.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")  # it begins with the first call
        self._free = threading.Lock()

    def both(self, one: Call, other: Call) -> None:
        """Make the two calls (AtOnce)."""
        if not self._free.acquire(blocking=False):
            _in_turn(one, other)
            return
        try:
            self._at_once(one, other)
        finally:
            self._free.release()

    def _at_once(self, one: Call, other: Call) -> None:
        try:
            begun = self._thread.submit(one)
        except RuntimeError:  # the interpreter ends, or the system has no thread left
            _in_turn(one, other)
            return
        try:
            other()
        finally:
            begun.result()


def _in_turn(one: Call, other: Call) -> None:
    one()
    other()


_ADVICE = {
    errno.ESTALE: "mount it again if it was mounted, and start again",
    errno.ENOSPC: "the disk is full: free room",
    errno.EDQUOT: "the quota is used up: free room or raise it",
    errno.EACCES: "give this user the permission",
    errno.EPERM: "give this user the permission, on a file system that has hard links",
    errno.EROFS: "mount the file system writable",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the system's limit of open files",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EOPNOTSUPP: "use a file system that has hard links",
}

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""A disk without room, without inodes, or with a quota that is used up."""

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The operating system refuses a call with these before it does anything."""

_MISTAKES = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
    }
)
"""Another name or another permission helps. Everything else is the disk's, or the mount's, and may
pass: EIO, ENOSPC, EROFS, ESTALE, ETIMEDOUT …
"""


def sync(descriptor: int) -> None:
    """Make an open file, or the names in an open directory, durable. Raises OSError."""
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)  # macOS' fsync leaves the data in the drive's cache


class Flush(Protocol):
    """A way to make all of a file system durable at once."""

    def is_cheap(self) -> bool:
        """Whether it does not wait for much that others have written."""
        ...

    def __call__(self, descriptor: int) -> None:
        """Make all durable that was written on the file system of an open file. Raises OSError if some of
        it, written since the file was opened, is lost.
        """
        ...


_CHEAP_BYTES = 64 * 1024 * 1024
_UNWRITTEN = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)


class SystemFlush:
    """Linux has syncfs(2) for it, which tells of what is lost since version 5.8."""

    def __init__(self, syncfs: Callable[[int], int]) -> None:
        self._syncfs = syncfs

    def is_cheap(self) -> bool:
        try:
            said = Path("/proc/meminfo").read_bytes()
        except OSError:
            return False
        return sum(1024 * int(size) for size in _UNWRITTEN.findall(said)) < _CHEAP_BYTES

    def __call__(self, descriptor: int) -> None:
        if self._syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def system_flush() -> Flush | None:
    """The way that this system has; None without one that tells of what is lost."""
    version = [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]]
    if os.uname().sysname != "Linux" or version < [5, 8]:
        return None
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return None if syncfs is None else SystemFlush(syncfs)


class NewFile:
    """A file that was just created, with its content, still open. To be closed."""

    def __init__(self, path: str, data: Data, sync: Callable[[int], None], mode: int = 0o666) -> None:
        """Create the file at `path`, with `mode` but for what the umask takes away; none is left when that
        fails. Raises OSError.
        """
        self.path, self.durable = path, False
        self._sync, self._tried = sync, False
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            left = memoryview(data).cast("B")
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self.remove()
            self.close()
            raise

    def make_durable(self) -> None:
        """Make the content durable, and on some file systems the name; no file is left when that fails.

        A second fsync would prove nothing: the first may have dropped what it could not write.
        Raises OSError.
        """
        if self.durable:
            return
        if self._tried:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._tried = True
        try:
            self._sync(self._descriptor)
        except OSError:
            self.remove()
            raise
        self.durable = True

    def remove(self) -> None:
        unlink(self.path)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def opened(file: str) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read(file: int, start: int, length: int) -> bytes:
    """Up to `length` bytes; one system call gives at most 2 GiB, and may give less."""
    data = os.pread(file, length, start)
    if len(data) == length:
        return data
    parts = [data]
    while parts[-1]:
        start += len(parts[-1])
        length -= len(parts[-1])
        parts.append(os.pread(file, length, start))
    return b"".join(parts)


def link(temporary: str, final: str) -> OSError | None:
    """Give the temporary file its final name too; returns the error if that failed.

    A network file system may lose the answer of a link, or answer a repeated one that the name exists. The
    file's count of names shows whether it happened (link(2)).
    """
    try:
        os.link(temporary, final)
    except OSError as error:
        return error if os.stat(temporary).st_nlink == 1 else None
    return None


def remove(path: str, file: str) -> bool:
    """Remove the object `path`; returns whether it was there.

    Raises PutRefused where it certainly is there still, OutcomeUnknown: a network file system may lose the
    answer.
    """
    try:
        os.unlink(file)
    except _NO_OBJECT:
        return False
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise PutRefused(f"{path} was not deleted: {_advice(error)}") from None
        raise OutcomeUnknown(f"{path} may be deleted or not: {_advice(error)}") from None
    return True


def unlink(file: str) -> None:
    try:
        os.unlink(file)
    except OSError:
        return  # it is gone, or remove_temporaries removes it later


Identity = tuple[int, int]


def identity_of(directory: str | int) -> Identity:
    """The device and the inode of the directory at a path, or of an open one."""
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def file_system_id(directory: str) -> int:
    """The id of the file system of a directory, which differs from that of another one on the same device."""
    return os.statvfs(directory).f_fsid


def modified_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000


def is_directory(path: str) -> bool:
    """Whether there is a directory at `path`. Raises OSError where that cannot be told: a lost mount."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def older(file: str, horizon_ms: int) -> bool:
    try:
        return modified_ms(os.stat(file)) < horizon_ms
    except OSError:
        return False  # its put has just ended


_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


@contextmanager
def reading(path: str) -> Iterator[None]:
    try:
        yield
    except _NO_OBJECT:
        raise ObjectMissing(f"there is no object {path}; it was never written, or deleted") from None
    except OSError as error:
        raise StoreUnavailable(f"{path or 'the root'} cannot be read: {_advice(error)}") from None


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Failures before anything is visible under the final name."""
    try:
        yield
    except OSError as error:
        raise refused(path, error) from None


@contextmanager
def unsure(path: str, failed: type[LakelogError] = OutcomeUnknown) -> Iterator[None]:
    """Failures after which the object may be visible, and may be lost in a power cut: `failed`."""
    try:
        yield
    except OSError as error:
        raise failed(f"{path} may not be durable: {_advice(error)}") from None


def refused(path: str, error: OSError) -> PutRefused:
    kind = StoreFull if error.errno in NO_ROOM else PutRefused
    return kind(f"{path} was not written: {_advice(error)}")


def exists(path: str) -> AlreadyExists:
    return AlreadyExists(f"there is an object {path} already; read it, or choose another name")


def unusable(what: str, error: OSError, advice: str, wrong: type[InvalidRequest]) -> LakelogError:
    """The error of `what` that a person has named: `wrong`, with this advice, where another name helps;
    StoreUnavailable where the disk or the mount fails.
    """
    if error.errno in _MISTAKES:
        return wrong(f"{what} ({error.strerror}); {advice}")
    return StoreUnavailable(f"{what}: {_advice(error)}")


def _advice(error: OSError) -> str:
    return f"{error.strerror}; {_ADVICE.get(error.errno or 0, 'check the disk')}"
