"""A directory as a store: POSIX files whose names appear whole and durable, or not at all.

A put writes a temporary file in the directory of the final name, fsyncs it, gives it the name (`link()`,
which fails when the name is taken; `rename()` to replace) and fsyncs the directory. So a name has its whole
content from the first moment on, but can be seen before it is durable: a process that finds it calls
`make_durable`. A file whose fsync failed is never used; a directory is fsynced again
(docs/decisions/0027-visible-is-not-durable.md). Errors name objects by their path under the root and never by
a path of the machine.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from log_tables.clock import Clock
from log_tables.errors import AlreadyExists, InvalidArgument, ObjectMissing, PutRefused, StoreUnavailable
from log_tables.layout import HOME_ANCHOR
from log_tables.store.objects import TEMPORARY_PREFIX, Data, ObjectInfo, check_directory, check_path

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

PRUNED_MAX = 10
"""How often a put re-creates its directory, which a delete that left it empty has just removed."""


def sync(descriptor: int) -> None:
    """Make an open file, or the names in an open directory, durable. Raises OSError."""
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)  # macOS' fsync leaves the data in the drive's cache


class LocalStore:
    """A directory of a POSIX file system that has hard links and an honest fsync. Thread-safe."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        options: Mapping[str, str] | None = None,
        sync: Callable[[int], None] = sync,
    ) -> None:
        """The store at `root`, the absolute path of a directory that exists. It ignores its options."""
        self.url = root.as_uri()
        self.options: Mapping[str, str] = dict(options or {})
        self._root = str(root)
        self._clock = clock
        self._sync = sync
        self._durable: dict[str, _Identity] = {}
        self._identity = _identity(self._root)
        self._anchor: str | None = None

    def get(self, path: str) -> bytes:
        with _reading(path), _opened(self._locate(path)) as file:
            return _read(file, 0, os.fstat(file).st_size)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with _reading(path), _opened(self._locate(path)) as file:
            return _read(file, start, length)

    def head(self, path: str) -> ObjectInfo:
        with _reading(path):
            found = os.stat(self._locate(path))
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(path)
            return ObjectInfo(path, found.st_size, _modified_ms(found))

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
                yield ObjectInfo(path, found.st_size, _modified_ms(found))

    def _scan(self, directory: str) -> Sequence[os.DirEntry[str]]:
        try:
            with _reading(directory), os.scandir(os.path.join(self._root, directory)) as entries:
                return list(entries)
        except ObjectMissing:
            return []

    def put(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as (temporary, final), _unsure(path):
            os.replace(temporary, final)
            self._sync_names(os.path.dirname(final))

    def put_if_absent(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as (temporary, final), _unsure(path):
            error = _link(temporary, final)
            if isinstance(error, FileExistsError):
                raise _exists(path)
            if error is not None:
                raise _refused(path, error)
            self._sync_names(os.path.dirname(final))

    def put_new(self, path: str, data: Data) -> None:
        with _refusing(path):
            try:
                final = self._write(path, "", data)
            except FileExistsError:
                raise _exists(path) from None
        with _unsure(path):
            self._sync_names(os.path.dirname(final))

    def make_durable(self, directory: str) -> None:
        place = os.path.join(self._root, check_directory(directory))
        with _unsure(directory or "the root"):
            while place != self._root and not os.path.isdir(place):
                place = os.path.dirname(place)  # it was pruned: its parent says that it is gone
            self._sync_names(place)

    def _sync_names(self, directory: str) -> None:
        """Make the names in `directory` durable, and once in this process its own name and those above it.

        Another process may have created the directory and died before its fsync.
        """
        with _opened(directory) as opened:
            self._sync(opened)
            identity = _identity(opened)
        if directory != self._root and self._durable.get(directory) != identity:
            self._sync_names(os.path.dirname(directory))
            self._durable[directory] = identity

    @contextmanager
    def _temporary(self, path: str, data: Data) -> Iterator[tuple[str, str]]:
        """(A durable temporary file with `data`, the final name in its directory); the file is gone in the
        end.
        """
        name = TEMPORARY_PREFIX + self._clock.unique_id()
        with _refusing(path):
            temporary = self._write(path, name, data)
        try:
            yield temporary, os.path.join(os.path.dirname(temporary), os.path.basename(path))
        finally:
            _unlink(temporary)

    def _write(self, path: str, name: str, data: Data) -> str:
        """Create the file of `path`, or one called `name` in its directory; returns its path."""
        for attempt in range(PRUNED_MAX):
            try:
                final = self._place(path)
                file = os.path.join(os.path.dirname(final), name) if name else final
                _write(file, data, self._sync)
            except FileNotFoundError:
                # A delete has pruned the directory, empty for a moment, between making and using it.
                if attempt == PRUNED_MAX - 1:
                    raise
            else:
                return file
        raise AssertionError("the loop returns or raises")

    def _place(self, path: str) -> str:
        """The file of `path`; creates the directories above it."""
        final = self._locate(path)
        directory = os.path.dirname(final)
        self._check_root()
        if not os.path.isdir(directory):
            with suppress(FileExistsError):  # it is a file: opening a file inside of it fails
                os.makedirs(directory, exist_ok=True)
        return final

    def _check_root(self) -> None:
        """Raise OSError unless the root is still the directory that was opened.

        A lost mount leaves an empty directory, in which a log would begin again. If the root was restored
        from a backup while it was open, our next version would follow no other. A network mount that expired
        and came back has another device, and the same root with the same anchor.
        """
        now = _identity(self._root)
        if now == self._identity:
            if self._anchor is None:
                self._anchor = self._anchor_now()
            return
        same_inode = now[1] == self._identity[1]
        if not same_inode or self._anchor is None or self._anchor != self._anchor_now():
            raise OSError(errno.ESTALE, "the root is not the directory that was opened")
        self._identity = now

    def _anchor_now(self) -> str | None:
        with suppress(ObjectMissing, StoreUnavailable):
            return self.identity(HOME_ANCHOR)
        return None

    def delete(self, path: str) -> None:
        file = self._locate(path)
        try:
            with _reading(path):
                os.unlink(file)
        except ObjectMissing:
            return
        self._prune(os.path.dirname(file))

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
        for directory, _, names in os.walk(self._root):
            for name in names:
                if name.startswith(TEMPORARY_PREFIX) and _older(
                    file := os.path.join(directory, name), horizon
                ):
                    _unlink(file)
                    removed += 1
            self._prune(directory)
        return removed

    def now_ms(self) -> int:
        """The time that the file system stamps on a file: that of another machine if it is remote."""
        name = TEMPORARY_PREFIX + self._clock.unique_id()
        probe = os.path.join(self._root, name)
        try:
            with _refusing(name):
                os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                return _modified_ms(os.stat(probe))
        finally:
            _unlink(probe)

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:
        file = self._locate(path)
        with _reading(path):
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
    """Create the directory `root`, durable and readable by its owner alone. Raises InvalidArgument.

    `name` is the name that the user gave. The name of a directory that exists is made durable too, as the
    process that created it may have died before its fsync. A directory above that this user cannot read was
    not created by this user. A new directory has the object `first`, a name and its data, from its first
    moment on.
    """
    missing = [directory for directory in (root, *root.parents) if not directory.is_dir()]
    try:
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
        raise InvalidArgument(
            f"the directory {name} cannot be created, or its name made durable ({error.strerror}); name "
            "another"
        ) from None


def _make_with(root: Path, path: str, data: bytes) -> None:
    """Make the directory `root` with a file in it, both at once, unless another process creates it first."""
    made = Path(mkdtemp(prefix=TEMPORARY_PREFIX, dir=root.parent))  # its owner's, as a root is
    try:
        _write(str(made / path), data, sync)
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
    with _opened(str(directory.parent)) as parent:
        sync(parent)


_Identity = tuple[int, int]


def _identity(directory: str | int) -> _Identity:
    """The device and the inode of the directory at a path, or of an open one."""
    found = os.stat(directory)
    return found.st_dev, found.st_ino


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(f"there is no object {path}; it was never written, or deleted") from None
    except OSError as error:
        raise StoreUnavailable(f"{path or 'the root'} cannot be read: {_advice(error)}") from None


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Failures before anything is visible under the final name."""
    try:
        yield
    except OSError as error:
        raise _refused(path, error) from None


@contextmanager
def _unsure(path: str) -> Iterator[None]:
    """Failures after which the object may be visible, and may be lost in a power cut."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{path} may not be durable: {_advice(error)}") from None


def _refused(path: str, error: OSError) -> PutRefused:
    return PutRefused(f"{path} was not written: {_advice(error)}")


def _exists(path: str) -> AlreadyExists:
    return AlreadyExists(f"there is an object {path} already; read it, or choose another name")


def _advice(error: OSError) -> str:
    return f"{error.strerror}; {_ADVICE.get(error.errno or 0, 'check the disk')}"


def _order(entry: os.DirEntry[str]) -> str:
    """The key that sorts directory entries by the paths below them."""
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


@contextmanager
def _opened(file: str) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(file: int, start: int, length: int) -> bytes:
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


def _write(file: str, data: Data, sync: Callable[[int], None]) -> None:
    """Create `file` with `data`, durable but for its name; no file is left when that fails.

    A second fsync would prove nothing: the first may have dropped what it could not write.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        left = memoryview(data).cast("B")
        while left:
            left = left[os.write(descriptor, left) :]
        sync(descriptor)
    except OSError:
        _unlink(file)
        raise
    finally:
        os.close(descriptor)


def _link(temporary: str, final: str) -> OSError | None:
    """Give the temporary file its final name too; returns the error if that failed.

    A network file system may lose the answer of a link, or answer a repeated one that the name exists. The
    file's count of names shows whether it happened (link(2)).
    """
    try:
        os.link(temporary, final)
    except OSError as error:
        return error if os.stat(temporary).st_nlink == 1 else None
    return None


def _unlink(file: str) -> None:
    try:
        os.unlink(file)
    except OSError:
        return  # it is gone, or remove_temporaries removes it later


def _modified_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000


def _older(file: str, horizon_ms: int) -> bool:
    try:
        return _modified_ms(os.stat(file)) < horizon_ms
    except OSError:
        return False  # its put has just ended
