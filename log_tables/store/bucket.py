"""S3, GCS, Azure or memory as a store, through obstore: conditional puts give put-if-absent.

A put of an object store is durable and whole when it is answered. A put that is not answered may have
happened all the same, and S3 may say that an object exists (409) to racers that all failed. A caller that
needs to know reads back (log_tables/table/commit.py).
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import MemoryStore, from_url

from log_tables.errors import (
    AlreadyExists,
    InvalidArgument,
    LakelogError,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
)
from log_tables.limits import STORE_RETRIES_MAX, STORE_RETRY_LIMIT_S
from log_tables.store.objects import (
    TEMPORARY_PREFIX,
    Data,
    ObjectInfo,
    Put,
    PutIfAbsent,
    check_directory,
    check_path,
    one_spelling,
)

_PROBE = f"{TEMPORARY_PREFIX}probe"

_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Options of the connection: delta-rs takes them with those of the store, obstore in a separate mapping."""

_ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
"""Names of the option for where an S3 store is, those that are used first."""

_TRUE = frozenset(("true", "1", "yes", "on", "t", "y"))
"""As obstore reads a switch."""

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_FULL = re.compile(
    r"<Code>(?:QuotaExceeded|BucketQuotaExceeded|XMinioAdminBucketQuotaExceeded|XMinioStorageFull|"
    r"StorageFull|InsufficientStorage|AccountQuotaExceeded|StorageLimitExceeded)</Code>"
    r"|\b507 Insufficient Storage"
)
"""A store says that it has no room, and has done nothing: Ceph, MinIO, and others that are like S3."""

_RETRIED = re.compile(r", after \d+ retries")
"""As obstore says that it has asked more than once."""

_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")


class _RefusedAtLast(OutcomeUnknown):
    """The store has no room, and an earlier attempt of the same write may have been done."""


class ObjectStore:
    """A prefix of a bucket, or memory of this process. Thread-safe."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        """The store at `url`, with the options of obstore and delta-rs, in the names of either:
        `aws_endpoint`, `AWS_REGION`, `allow_http`, `timeout` … Raises InvalidArgument.
        """
        self.url = url if url.endswith("://") else url.rstrip("/")
        self.options: Mapping[str, str] = dict(options)
        in_memory = url.startswith("memory:")
        try:
            self._backend = MemoryStore() if in_memory else _connect(self.url, options)
        except (BaseError, ValueError) as error:
            said = _said(error)
            named = [name for name, value in options.items() if f'"{value}"' in said]
            which = f"option {named[0]}" if named else "options"
            raise InvalidArgument(f"{url} cannot be opened: {said}; check its {which}") from None

    def get(self, path: str) -> bytes:
        with _asking(path):
            return bytes(obstore.get(self._backend, check_path(path)).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with _asking(path):
            try:
                return bytes(obstore.get_range(self._backend, check_path(path), start=start, length=length))
            except BaseError:
                if start < obstore.head(self._backend, path)["size"]:
                    raise
                return b""  # stores refuse a range that begins at the end

    def head(self, path: str) -> ObjectInfo:
        with _asking(path):
            found = obstore.head(self._backend, check_path(path))
        return ObjectInfo(path, found["size"], _milliseconds(found["last_modified"]))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        directory = check_directory(prefix)
        with _asking(directory):
            pages = obstore.list(self._backend, directory or None, offset=start_after or None)
            found = [
                ObjectInfo(item["path"], item["size"], _milliseconds(item["last_modified"]))
                for page in pages
                for item in page
                if not item["path"].startswith(TEMPORARY_PREFIX)
            ]
        yield from sorted(found, key=lambda item: item.path)

    def list_dirs(self, prefix: str) -> Sequence[str]:
        directory = check_directory(prefix)
        with _asking(directory):
            found = obstore.list_with_delimiter(self._backend, directory or None)
        return sorted(path.rstrip("/") for path in found["common_prefixes"])

    def put(self, path: str, data: Data) -> None:
        self._put(check_path(path), data)

    def _put(self, path: str, data: Data) -> None:
        with _writing(path):
            obstore.put(self._backend, path, memoryview(data).cast("B"))

    def put_if_absent(self, path: str, data: Data) -> None:
        self._put_if_absent(check_path(path), data)

    def _put_if_absent(self, path: str, data: Data) -> None:
        with _writing(path):
            obstore.put(self._backend, path, memoryview(data).cast("B"), mode="create", use_multipart=False)

    def put_new(self, path: str, data: Data) -> None:
        with _unnoticed():
            self.put(path, data)

    @contextmanager
    def put_new_before(self, path: str, data: Data) -> Iterator[PutIfAbsent]:
        self.put_new(path, data)
        yield self.put_if_absent

    def put_together(self, puts: Sequence[Put]) -> Collection[str]:  # noqa: ARG002
        return ()  # its requests go side by side

    def make_durable(self, directory: str) -> None:
        check_directory(directory)  # a visible object is durable

    def delete(self, path: str) -> None:
        try:
            with _writing(path, missing=True):
                obstore.delete(self._backend, check_path(path))
        except ObjectMissing:
            return

    def delete_objects(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        try:
            with _writing(paths[0], missing=True):
                obstore.delete(self._backend, [check_path(path) for path in paths])
        except ObjectMissing:
            for path in paths:  # GCS and Azure end at the first that is gone already
                self.delete(path)

    def remove_temporaries(self, older_than_ms: int) -> int:  # noqa: ARG002 (the protocol's)
        """There are none: the lifecycle rules of the bucket end an upload that was killed."""
        return 0

    def now_ms(self) -> int:
        """The time that the store stamps on a small object, which is put for that; S3 has whole seconds."""
        self._put_probe()
        with _asking(_PROBE):
            return _milliseconds(obstore.head(self._backend, _PROBE)["last_modified"])

    def check_puts(self) -> None:
        """Raise InvalidArgument if a conditional put replaces an object, which would lose data;
        StoreUnavailable.
        """
        self._put_probe()
        try:
            with _unnoticed():
                self._put_if_absent(_PROBE, b"")
        except AlreadyExists:
            return
        raise InvalidArgument(
            f"{self.url} ignores the condition of a put (If-None-Match: *), on which every append relies; "
            "use a store that has conditional puts"
        )

    def check_room(self, data: Data) -> None:
        """Raise StoreFull where `data` finds no room now, and StoreUnavailable. Nothing is left of it."""
        self._put_probe(data)
        self._put_probe()

    def _put_probe(self, data: Data = b"") -> None:
        with _unnoticed():
            self._put(_PROBE, data)

    def identity(self, path: str, directories: Sequence[str] = ()) -> str:  # noqa: ARG002 (it has none)
        return f"{one_spelling(self.url)} {self.head(path).modified_ms}"

    def delta_location(self, path: str) -> tuple[str, dict[str, str]]:
        if isinstance(self._backend, MemoryStore):
            raise InvalidArgument(f"{self.url} is visible to this process only; use a directory or a bucket")
        return f"{self.url}/{check_path(path)}", dict(self.options)


def _connect(url: str, options: Mapping[str, str]) -> obstore.store.ObjectStore:
    # obstore reads the environment for these only where no option of the connection is given.
    known = {f"AWS_{name.upper()}": name for name in _CLIENT_OPTIONS}
    client = {name: os.environ[key] for key, name in known.items() if key in os.environ}
    config = {}
    for name, value in options.items():
        short = name.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if short in _CLIENT_OPTIONS:
            client[short] = value
        else:
            config[name] = value
    if url.startswith("s3"):
        _check_scheme(config, client)
    retries = {"max_retries": STORE_RETRIES_MAX, "retry_timeout": timedelta(seconds=STORE_RETRY_LIMIT_S)}
    return from_url(url, config=config, client_options=client, retry_config=retries)  # type: ignore[call-overload,no-any-return]


def _check_scheme(config: Mapping[str, str], client: Mapping[str, str]) -> None:
    """Raise ValueError for an endpoint without TLS where it is not said that this is meant."""
    options = {name.lower(): value for name, value in config.items()}
    of_aws = {name.lower(): value for name, value in os.environ.items() if name.startswith("AWS_")}
    given = (each[name] for each in (options, of_aws) for name in _ENDPOINTS if each.get(name))
    endpoint = next(given, "")
    if endpoint.lower().startswith("http://") and client.get("allow_http", "").lower() not in _TRUE:
        raise ValueError(f"the endpoint {endpoint} is not https; set the option allow_http to true for it")


@contextmanager
def _asking(path: str, missing: bool = True, failed: type[LakelogError] = StoreUnavailable) -> Iterator[None]:
    """An error is `failed`; ObjectMissing where an object can be `missing`."""
    try:
        yield
    except AlreadyExistsError:
        raise AlreadyExists(f"there is an object {path} already; read it, or choose another name") from None
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and missing and not _NO_BUCKET.search(str(error)):
            raise ObjectMissing(f"there is no object {path}; it was never written, or was deleted") from None
        if failed is OutcomeUnknown and _FULL.search(str(error)):
            code = _ERROR_CODE.search(str(error))
            why = f"the store has no room ({code[1]})" if code else "the store has no room"
            # An attempt before the last may have been done, where its answer was lost.
            certain = not _RETRIED.search(str(error))
            raise (StoreFull if certain else _RefusedAtLast)(
                f"{path or 'the root'} was not written: {why}; free room or raise the quota"
            ) from None
        raise failed(
            f"the store failed at {path or 'its root'}: {_said(error)}; check that it runs, its options and "
            "its permissions"
        ) from None


def _writing(path: str, missing: bool = False) -> AbstractContextManager[None]:
    """A write: behind a network nobody knows whether one that failed was done."""
    return _asking(path, missing, OutcomeUnknown)


@contextmanager
def _unnoticed() -> Iterator[None]:
    """A write without an answer harms nobody: no other process knows the name, or none reads the object."""
    try:
        yield
    except _RefusedAtLast as error:
        raise StoreFull(error.message) from None
    except OutcomeUnknown as error:
        raise StoreUnavailable(error.message) from None


def _said(error: BaseException) -> str:
    """The message of obstore without nested causes and debug output, and with the code of an XML answer."""
    text = str(error).strip() or type(error).__name__
    first = text.split("\n", 1)[0].split("<?xml", 1)[0].rstrip(": ")[:300]
    code = _ERROR_CODE.search(text)
    return f"{first} ({code[1]})" if code else first


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
