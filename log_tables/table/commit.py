"""The Delta commit: actions as JSON lines, put if absent. No other module writes `_delta_log/<version>.json`.

The file format is the Delta transaction log protocol, reader version 1, writer version 2:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from log_tables.clock import Backoff, Clock
from log_tables.errors import (
    AlreadyExists,
    CorruptLog,
    ObjectMissing,
    OutcomeUnknown,
    PutRefused,
    StoreUnavailable,
)
from log_tables.layout import commit_path, log_directory
from log_tables.limits import PUT_RETRY_LIMIT_S, PUT_RETRY_PAUSE_S
from log_tables.store.store import PutIfAbsent, Store
from log_tables.version import VERSION

ENGINE = f"lakelog/{VERSION}"
"""Delta's `engineInfo`: which program wrote a commit."""

VACUUM = "VACUUM"
"""The one operation of ours without actions: its commit only makes older ones that are in flight lose."""

DELETE_RECORDS = "DELETE RECORDS"
"""The operation of a commit that moves the log start up: of DeleteRecords, and of retention."""

RESTORE = "RESTORE"
"""The operation of a commit that brings back what was deleted. No reader of changes has it twice: it says
`dataChange: false`."""

_PUT_RETRIES = Backoff(PUT_RETRY_PAUSE_S, max_s=PUT_RETRY_LIMIT_S)


_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63) + 1, le=2**63 - 1)]
"""A `long` of Delta, but for the least, which stands for none in a column."""


class ProducedBatch(msgspec.Struct, frozen=True, array_like=True):
    """One idempotent producer's records in a commit."""

    id: int
    epoch: int
    sequence: int
    base_offset: int
    count: int


class CommitInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origin of a commit. `batchId` is unique: a process that reads back its own knows that its put
    won. Those of compactions by key have `operationMetrics`.
    """

    timestamp: int = 0
    operation: str = ""
    operationParameters: dict[str, object] = {}  # noqa: N815 (the protocol's names)
    isBlindAppend: bool | None = None  # noqa: N815
    engineInfo: str = ""  # noqa: N815
    batchId: str = ""  # noqa: N815
    leaderEpoch: int | None = None  # noqa: N815
    leaderUrl: str | None = None  # noqa: N815
    producers: tuple[ProducedBatch, ...] = ()
    operationMetrics: dict[str, object] = {}  # noqa: N815


def file_metrics(adds: Sequence["Add"], removes: Sequence["Remove"]) -> dict[str, object]:
    """The numbers of files of a rewrite, as Delta's `operationMetrics`."""
    return {"numAddedFiles": str(len(adds)), "numRemovedFiles": str(len(removes))}


class Protocol(msgspec.Struct, frozen=True, omit_defaults=True):
    minReaderVersion: int  # noqa: N815
    minWriterVersion: int  # noqa: N815
    readerFeatures: tuple[str, ...] | None = None  # noqa: N815
    writerFeatures: tuple[str, ...] | None = None  # noqa: N815


class Format(msgspec.Struct, frozen=True):
    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(msgspec.Struct, frozen=True):
    id: str
    schemaString: str  # noqa: N815
    format: Format = Format()
    partitionColumns: tuple[str, ...] = ()  # noqa: N815
    configuration: dict[str, str] = {}
    createdTime: _Int64 | None = None  # noqa: N815
    name: str | None = None
    description: str | None = None


class Txn(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"app_id": "appId", "last_updated": "lastUpdated"},
):
    """An application's version in the table. One with `last_updated` (ms) may be forgotten, others never
    are.
    """

    app_id: str
    version: _Int64
    last_updated: _Int64 | None = None


class Add(msgspec.Struct, frozen=True):
    path: str
    size: _Int64
    modificationTime: _Int64  # noqa: N815
    dataChange: bool  # noqa: N815
    stats: str | None = None
    tags: dict[str, str] | None = None
    partitionValues: dict[str, str | None] = {}  # noqa: N815


class Remove(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    dataChange: bool  # noqa: N815
    deletionTimestamp: _Int64 | None = None  # noqa: N815
    size: _Int64 | None = None
    extendedFileMetadata: bool | None = None  # noqa: N815
    partitionValues: dict[str, str | None] | None = None  # noqa: N815
    stats: str | None = None
    tags: dict[str, str] | None = None


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a commit file: exactly one field is set. Unknown actions decode to an empty line."""

    commitInfo: CommitInfo | None = None  # noqa: N815
    protocol: Protocol | None = None
    metaData: Metadata | None = None  # noqa: N815
    txn: Txn | None = None
    add: Add | None = None
    remove: Remove | None = None


Action = CommitInfo | Protocol | Metadata | Txn | Add | Remove

_FIELD = {
    CommitInfo: "commitInfo",
    Protocol: "protocol",
    Metadata: "metaData",
    Txn: "txn",
    Add: "add",
    Remove: "remove",
}
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Commit:
    """The actions of one version, sorted by kind.

    `needs` are paths of files that the table must have for it, besides those that it removes. They are not
    written, and only who offers a commit to a leader says them.
    """

    info: CommitInfo
    txns: tuple[Txn, ...] = ()
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    needs: frozenset[str] = field(default=frozenset(), compare=False)

    def actions(self) -> list[Action]:
        """All actions, in the order in which they are written."""
        first = [action for action in (self.protocol, self.metadata) if action is not None]
        return [self.info, *first, *self.txns, *self.removes, *self.adds]

    def changes_data(self) -> bool:
        return any(add.dataChange for add in self.adds) or any(r.dataChange for r in self.removes)


def encode(commit: Commit) -> bytes:
    """`commit` as the bytes of its file."""
    lines = (_encoder.encode({_FIELD[type(action)]: action}) for action in commit.actions())
    return b"\n".join(lines) + b"\n"


def decode(data: bytes, path: str) -> Commit:
    """The commit in the bytes of the file `path`. Raises CorruptLog."""
    try:
        lines = [_decoder.decode(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise CorruptLog(f"the commit {path} cannot be read ({error}); restore the file") from None
    if not lines:
        raise CorruptLog(f"the commit {path} is empty; restore the file")
    return Commit(
        info=next((line.commitInfo for line in lines if line.commitInfo), CommitInfo()),
        txns=tuple(line.txn for line in lines if line.txn),
        adds=tuple(line.add for line in lines if line.add),
        removes=tuple(line.remove for line in lines if line.remove),
        protocol=next((line.protocol for line in lines if line.protocol), None),
        metadata=next((line.metaData for line in lines if line.metaData), None),
    )


def read_commit(store: Store, table: str, version: int) -> Commit | None:
    """The commit of `version`; None without one."""
    data = read_data(store, table, version)
    return None if data is None else decode(data, commit_path(table, version))


def read_data(store: Store, table: str, version: int) -> bytes | None:
    """The bytes of the commit of `version`; None without one."""
    try:
        return store.get(commit_path(table, version))
    except ObjectMissing:
        return None


def read_engine(store: Store, table: str, version: int) -> str | None:
    """The engine that the commit of `version` names; "" if it names none, None without a commit.

    Only its first line is decoded: a commit may hold thousands of actions. Raises CorruptLog.
    """
    data = read_data(store, table, version)
    if data is None:
        return None
    return decode(data.partition(b"\n")[0], commit_path(table, version)).info.engineInfo


def make_table_durable(store: Store, directory: str) -> None:
    """Make all visible files of the table at `directory` durable. Raises StoreUnavailable."""
    store.make_durable(directory)
    store.make_durable(log_directory(directory))


def put_commit(
    store: Store,
    table: str,
    version: int,
    commit: Commit,
    clock: Clock,
    put: PutIfAbsent | None = None,
    data: bytes | None = None,
) -> Commit | None:
    """Put `commit` as `version` of `table` if there is none yet, by `put` or the store's `put_if_absent`.

    `data` are its bytes, where they are made already.

    Returns None when `commit` is there and durable; otherwise the commit that was there first, which may not
    be durable yet. It may bear the same `batchId`: a leader may have put an earlier form of an offer. While
    the outcome of a put is unknown, the same bytes are put again under the same version. Raises
    OutcomeUnknown when that takes longer than PUT_RETRY_LIMIT_S, StoreUnavailable when the store certainly
    wrote nothing.
    """
    path = commit_path(table, version)
    if data is None:
        data = encode(commit)
    deadline = clock.monotonic() + PUT_RETRY_LIMIT_S
    pause_s = _PUT_RETRIES.first_s
    certain = True
    while True:
        try:
            (put or store.put_if_absent)(path, data)
            return None
        except PutRefused:
            if certain:
                raise
        except (AlreadyExists, OutcomeUnknown, StoreUnavailable):
            certain = False
        found = _read_back(store, table, version)
        if found is not None and found != commit:
            return found
        # Nothing is there, although the store may have said so (a racing put failed); or it is ours, in a
        # directory whose fsync failed: visible, and not durable.
        if found is not None and _made_durable(store, table):
            return None
        if clock.monotonic() >= deadline:
            raise OutcomeUnknown(
                f"the store did not say within {PUT_RETRY_LIMIT_S:g} s whether version {version} was written "
                "and is durable; repeat the request with an idempotent producer, else read first"
            )
        clock.pause(pause_s)
        pause_s = _PUT_RETRIES.after(pause_s)


def _read_back(store: Store, table: str, version: int) -> Commit | None:
    try:
        return read_commit(store, table, version)
    except StoreUnavailable:
        return None


def _made_durable(store: Store, table: str) -> bool:
    try:
        make_table_durable(store, table)
    except StoreUnavailable:
        return False
    return True
