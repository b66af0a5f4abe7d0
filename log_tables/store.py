"""Objects under one root: get, get range, list, delete, put, and put-if-absent, on which the commit protocol rests.

`LocalStore` is a directory: a temporary file, fsync, `link()` to the final name (which fails when it exists),
fsync of the directory. `ObjectStore` is S3, GCS, Azure or memory through obstore, with conditional puts.
Paths are relative to the root with `/`; errors name them so, and never a path of the machine.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from log_tables.clock import Clock, SystemClock
from log_tables.errors import AlreadyExists, InvalidArgument, ObjectMissing, PutRefused, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

Data = bytes | bytearray | memoryview
TEMPORARY_PREFIX = ".tmp-"
_PROBE = ".clock"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's path under the root, size in bytes, and time of its last change by the store's clock."""

    path: str
    size: int
    modified_ms: int


class Store(Protocol):
    """What lakelog asks of a store. Every method blocks; a put is durable when it returns.

    All raise StoreUnavailable when the store does not answer; of a put that alone says nothing about whether
    it happened, unless it is PutRefused.
    """

    url: str

    def get(self, path: str) -> bytes:
        """The whole object. Raises ObjectMissing."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer at the end. Raises ObjectMissing."""
        ...

    def head(self, path: str) -> ObjectInfo:
        """What is known of an object without reading it. Raises ObjectMissing."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object whose path begins with `prefix` (a directory and `/`), ordered by path."""
        ...

    def list_dirs(self, prefix: str) -> "list[str]":
        """The directories right below `prefix` (a directory and `/`), whole paths without the last `/`."""
        ...

    def put(self, path: str, data: Data) -> None:
        """Create or replace the object; a reader sees the old or the new one, never a part."""
        ...

    def put_if_absent(self, path: str, data: Data) -> None:
        """Create the object. Raises AlreadyExists when there is one."""
        ...

    def put_new(self, path: str, data: Data) -> None:
        """Create an object whose name nobody else can choose; until it returns a reader may see a part."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object; that there is none is fine."""
        ...

    def now_ms(self) -> int:
        """The store's own clock, which stamps `modified_ms`: milliseconds since 1970 UTC."""
        ...

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        """Where Delta readers find the table at `path`: a URL and their storage options."""
        ...


def open_store(
    url: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    create: bool = True,
) -> Store:
    """The store at a directory, or at an `s3://`, `gs://`, `az://` or `memory://` URL.

    `options` go to the object store (beside its environment variables, as `AWS_ACCESS_KEY_ID`). A directory
    that does not exist is made, unless `create` is false. Raises InvalidArgument.
    """
    text = os.fspath(url)
    scheme = urlsplit(text).scheme if "://" in text else "file"
    if scheme == "file":
        path = Path(urlsplit(text).path if "://" in text else text).absolute()
        if not path.is_dir():
            if not create:
                raise InvalidArgument(f"there is no directory {text}; name the root of the tables")
            _make_root(path, text)
        return LocalStore(path, clock or SystemClock())
    if scheme in ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory"):
        return ObjectStore(text, options or {})
    raise InvalidArgument(
        f"the scheme {scheme!r} of {text} is not known; use a directory, s3://, gs://, az:// or memory://"
    )


def _make_root(path: Path, text: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"{text} cannot be made a directory ({error.strerror}); name another") from None


class LocalStore:
    """A directory of a POSIX file system that has hard links and an honest fsync."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.url = root.as_uri()
        self._root = str(root)
        self._clock = clock

    def get(self, path: str) -> bytes:
        with _reading(path):
            descriptor = os.open(self._locate(path), os.O_RDONLY)
            try:
                return _read(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with _reading(path):
            descriptor = os.open(self._locate(path), os.O_RDONLY)
            try:
                os.lseek(descriptor, start, os.SEEK_SET)
                return _read(descriptor, length)
            finally:
                os.close(descriptor)

    def head(self, path: str) -> ObjectInfo:
        with _reading(path):
            found = os.stat(self._locate(path))
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(path)
            return ObjectInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        yield from sorted(self._walk(prefix.rstrip("/")), key=lambda item: item.path)

    def _walk(self, directory: str) -> Iterator[ObjectInfo]:
        for entry in self._scan(directory):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(path)
            elif not entry.name.startswith(TEMPORARY_PREFIX):
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue  # deleted while we looked
                yield ObjectInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def list_dirs(self, prefix: str) -> "list[str]":
        directory = prefix.rstrip("/")
        names = (entry.name for entry in self._scan(directory) if entry.is_dir(follow_symlinks=False))
        return sorted(f"{directory}/{name}" if directory else name for name in names)

    def _scan(self, directory: str) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(self._locate(directory)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreUnavailable(_unreadable(directory, error)) from None

    def put(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as (temporary, final), _writing(path):
            os.replace(temporary, final)
            _sync_directory(os.path.dirname(final))

    def put_if_absent(self, path: str, data: Data) -> None:
        with self._temporary(path, data) as (temporary, final):
            try:
                with _refusing(path):
                    os.link(temporary, final)
            except FileExistsError:
                raise AlreadyExists(f"there is an object {path} already; choose another name") from None
            with _writing(path):
                _sync_directory(os.path.dirname(final))

    def put_new(self, path: str, data: Data) -> None:
        final = self._locate(path)
        with _refusing(path):
            self._make_parents(final)
            try:
                _write(final, data)
                _sync_directory(os.path.dirname(final))
            except FileExistsError:
                raise AlreadyExists(f"there is an object {path} already; choose another name") from None
            except OSError:
                _unlink(final)
                raise

    @contextmanager
    def _temporary(self, path: str, data: Data) -> Iterator[tuple[str, str]]:
        """A durable temporary file with `data`, beside its final name; gone in the end."""
        final = self._locate(path)
        temporary = os.path.join(os.path.dirname(final), TEMPORARY_PREFIX + self._clock.unique_id())
        try:
            with _refusing(path):
                self._make_parents(final)
                _write(temporary, data)
            yield temporary, final
        finally:
            _unlink(temporary)

    def _make_parents(self, final: str) -> None:
        parent = os.path.dirname(final)
        if os.path.isdir(parent):
            return
        missing = []
        while not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for directory in reversed(missing):
            os.makedirs(directory, exist_ok=True)
            _sync_directory(os.path.dirname(directory))

    def delete(self, path: str) -> None:
        try:
            os.unlink(self._locate(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be deleted ({error.strerror}); check the disk") from None
        self._prune(os.path.dirname(self._locate(path)))

    def _prune(self, directory: str) -> None:
        """Remove directories that became empty, as an object store has none."""
        while directory.startswith(self._root + os.sep):
            try:
                os.rmdir(directory)
            except OSError:
                return
            directory = os.path.dirname(directory)

    def remove_temporaries(self, older_than_ms: int) -> int:
        """Remove what puts that were killed left behind; returns how many files."""
        removed, horizon = 0, self.now_ms() - older_than_ms
        for directory, _, names in os.walk(self._root):
            for name in names:
                file = os.path.join(directory, name)
                if name.startswith(TEMPORARY_PREFIX) and _modified_ms(file) < horizon:
                    _unlink(file)
                    removed += 1
        return removed

    def now_ms(self) -> int:
        """The system clock: it stamps the files too."""
        return self._clock.now_ms()

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        return self._locate(path), {}

    def _locate(self, path: str) -> str:
        return os.path.join(self._root, _checked(path))


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(f"there is no object {path}") from None
    except OSError as error:
        raise StoreUnavailable(_unreadable(path, error)) from None


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Failures before anything is visible under the final name."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise PutRefused(f"{path} was not written ({error.strerror}); free room or mend the disk") from None


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Failures after the object may be visible."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{path} may not be durable ({error.strerror}); mend the disk") from None


def _unreadable(path: str, error: OSError) -> str:
    return f"{path or 'the root'} cannot be read ({error.strerror}); check the disk and its permissions"


def _read(descriptor: int, length: int) -> bytes:
    data = os.read(descriptor, length)
    if len(data) == length:
        return data
    parts = [data]
    while parts[-1] and (length := length - len(parts[-1])) > 0:
        parts.append(os.read(descriptor, length))
    return b"".join(parts)


def _write(file: str, data: Data) -> None:
    """Create `file` with `data`, durable but for its name."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink(file: str) -> None:
    try:
        os.unlink(file)
    except OSError:
        return  # gone already, or left for remove_temporaries


def _modified_ms(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 2**63


class ObjectStore:
    """S3, GCS, Azure or memory, through obstore: conditional puts (`If-None-Match: *`) give put-if-absent."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        from obstore.exceptions import BaseError
        from obstore.store import MemoryStore, from_url

        self.url = url.rstrip("/")
        self._options = dict(options)
        try:
            self._backend: Backend = (
                MemoryStore() if url.startswith("memory:") else from_url(self.url, config=self._options)  # type: ignore[call-overload]
            )
        except (BaseError, ValueError) as error:
            raise InvalidArgument(
                f"{url} cannot be opened: {_first_line(error)}; check its options"
            ) from None

    def get(self, path: str) -> bytes:
        import obstore

        with self._asking(path):
            return bytes(obstore.get(self._backend, _checked(path)).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        import obstore

        with self._asking(path):
            length = min(length, obstore.head(self._backend, _checked(path))["size"] - start)
            if length <= 0:
                return b""
            return bytes(obstore.get_range(self._backend, path, start=start, length=length))

    def head(self, path: str) -> ObjectInfo:
        import obstore

        with self._asking(path):
            found = obstore.head(self._backend, _checked(path))
            return ObjectInfo(path, found["size"], int(found["last_modified"].timestamp() * 1000))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        import obstore

        with self._asking(prefix):
            found = [item for page in obstore.list(self._backend, prefix=prefix.rstrip("/")) for item in page]
        for item in sorted(found, key=lambda item: item["path"]):
            if item["path"] != _PROBE:
                modified_ms = int(item["last_modified"].timestamp() * 1000)
                yield ObjectInfo(item["path"], item["size"], modified_ms)

    def list_dirs(self, prefix: str) -> "list[str]":
        import obstore

        with self._asking(prefix):
            found = obstore.list_with_delimiter(self._backend, prefix=prefix.rstrip("/") or None)
            return sorted(path.rstrip("/") for path in found["common_prefixes"])

    def put(self, path: str, data: Data) -> None:
        import obstore

        with self._asking(path):
            obstore.put(self._backend, _checked(path), memoryview(data))

    def put_if_absent(self, path: str, data: Data) -> None:
        import obstore

        with self._asking(path):
            obstore.put(self._backend, _checked(path), memoryview(data), mode="create", use_multipart=False)

    def put_new(self, path: str, data: Data) -> None:
        self.put(path, data)

    def delete(self, path: str) -> None:
        import obstore

        try:
            with self._asking(path):
                obstore.delete(self._backend, _checked(path))
        except ObjectMissing:
            return

    def now_ms(self) -> int:
        """The time that the store stamps on a small object, written for the purpose."""
        self.put(_PROBE, b"")
        return self.head(_PROBE).modified_ms

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        if self.url.startswith("memory:"):
            raise InvalidArgument(f"{self.url} is visible to this process only; use a directory or a bucket")
        return f"{self.url}/{path}", dict(self._options)

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except FileNotFoundError:
            raise ObjectMissing(f"there is no object {path}") from None
        except (AlreadyExistsError, PreconditionError):
            raise AlreadyExists(f"there is an object {path} already; choose another name") from None
        except (BaseError, OSError) as error:
            raise StoreUnavailable(
                f"the store did not answer for {path}: {_first_line(error)}; check that it runs and its options"
            ) from None


def _checked(path: str) -> str:
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidArgument(f"the path {path!r} leads out of the root; use one below it")
    return path


def _first_line(error: BaseException) -> str:
    """What obstore says, without its nested causes and debug output."""
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
