"""A checkpoint: the state of a table at one version in one Parquet file, so that the table opens fast.

These are classic single-file checkpoints of the Delta protocol (section "Checkpoints"), written from memory.
A general Delta writer reads the log for them, which takes time that grows with the log (docs/decisions/).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from log_tables.errors import CorruptLog, ObjectMissing
from log_tables.layout import (
    checkpoint_path,
    checkpoint_version,
    last_checkpoint_path,
    log_directory,
)
from log_tables.store.store import Store
from log_tables.table.commit import Add, Format, Metadata, Protocol, Remove, Txn

_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _STRINGS),
        ("writerFeatures", _STRINGS),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _STRINGS),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("tags", _MAP),
        ("stats", pa.string()),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
    ]
)
_SCHEMA = pa.schema(
    [
        ("txn", _TXN),
        ("add", _ADD),
        ("remove", _REMOVE),
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
    ]
)


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The `_last_checkpoint` file: a hint where to begin, which may be out of date."""

    version: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    size: int
    sizeInBytes: int = 0  # noqa: N815
    numOfAddFiles: int = 0  # noqa: N815


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a table at `version`."""

    version: int
    protocol: Protocol
    metadata: Metadata
    txns: Sequence[Txn]
    adds: Sequence[Add]
    removes: Sequence[Remove]


def write_checkpoint(store: Store, table: str, checkpoint: Checkpoint) -> None:
    """Write the checkpoint file, then point `_last_checkpoint` at it. Repeating it is harmless."""
    data = encode(checkpoint)
    store.put(checkpoint_path(table, checkpoint.version), data)
    rows = len(checkpoint.txns) + len(checkpoint.adds) + len(checkpoint.removes) + 2
    hint = LastCheckpoint(checkpoint.version, rows, len(data), len(checkpoint.adds))
    store.put(last_checkpoint_path(table), msgspec.json.encode(hint))


def encode(checkpoint: Checkpoint) -> bytes:
    """`checkpoint` as the bytes of a Parquet file: one row for each action."""
    kinds = {
        "protocol": _structs([checkpoint.protocol], _PROTOCOL),
        "metaData": _metadata(checkpoint.metadata),
        "txn": _txns(checkpoint.txns),
        "add": _adds(checkpoint.adds),
        "remove": _removes(checkpoint.removes),
    }
    total = sum(len(column) for column in kinds.values())
    columns: dict[str, pa.Array] = {}
    start = 0
    for name, column in kinds.items():
        rest = total - start - len(column)
        parts = [pa.nulls(start, column.type), column, pa.nulls(rest, column.type)]
        columns[name] = pa.concat_arrays(parts)
        start += len(column)
    sink = io.BytesIO()
    table = pa.table([columns[field.name] for field in _SCHEMA], schema=_SCHEMA)
    pq.write_table(table, sink, compression="snappy", write_page_checksum=True)
    return sink.getvalue()


def _structs(items: Sequence[Protocol], kind: pa.StructType) -> pa.Array:
    return pa.array([{field.name: getattr(item, field.name) for field in kind} for item in items], kind)


def _metadata(metadata: Metadata) -> pa.Array:
    row = msgspec.structs.asdict(metadata)
    row["format"] = {
        "provider": metadata.format.provider,
        "options": list(metadata.format.options.items()),
    }
    row["configuration"] = list(metadata.configuration.items())
    return pa.array([row], _METADATA)


def _txns(txns: Sequence[Txn]) -> pa.Array:
    columns = [
        pa.array([txn.app_id for txn in txns], pa.string()),
        pa.array([txn.version for txn in txns], pa.int64()),
        pa.array([txn.last_updated for txn in txns], pa.int64()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_TXN))


def _adds(adds: Sequence[Add]) -> pa.Array:
    columns = [
        pa.array([add.path for add in adds], pa.string()),
        pa.array([list(add.partitionValues.items()) for add in adds], _MAP),
        pa.array([add.size for add in adds], pa.int64()),
        pa.array([add.modificationTime for add in adds], pa.int64()),
        pa.array([False] * len(adds), pa.bool_()),
        pa.array([None if add.tags is None else list(add.tags.items()) for add in adds], _MAP),
        pa.array([add.stats for add in adds], pa.string()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _removes(removes: Sequence[Remove]) -> pa.Array:
    columns = [
        pa.array([remove.path for remove in removes], pa.string()),
        pa.array([remove.deletionTimestamp for remove in removes], pa.int64()),
        pa.array([False] * len(removes), pa.bool_()),
        pa.array([True] * len(removes), pa.bool_()),
        pa.array([list((remove.partitionValues or {}).items()) for remove in removes], _MAP),
        pa.array([remove.size for remove in removes], pa.int64()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_REMOVE))


def hinted_version(store: Store, table: str) -> int | None:
    """The version that `_last_checkpoint` names; None if it cannot be read."""
    try:
        return msgspec.json.decode(store.get(last_checkpoint_path(table)), type=LastCheckpoint).version
    except (ObjectMissing, msgspec.MsgspecError, RecursionError):
        return None


def read_checkpoint(store: Store, table: str) -> Checkpoint | None:
    """The checkpoint that `_last_checkpoint` names, or else the newest; None without one. Raises
    CorruptLog.
    """
    try:
        hint = msgspec.json.decode(store.get(last_checkpoint_path(table)), type=LastCheckpoint)
        return decode(store.get(checkpoint_path(table, hint.version)), hint.version, table)
    except (ObjectMissing, msgspec.MsgspecError, RecursionError):
        return newest_checkpoint(store, table)


def newest_checkpoint(store: Store, table: str) -> Checkpoint | None:
    """The newest checkpoint by a listing of the log, for when the hint is missing or out of date."""
    while True:
        versions = [checkpoint_version(item.path) for item in store.list(log_directory(table) + "/")]
        newest = max((version for version in versions if version is not None), default=None)
        if newest is None:
            return None
        try:
            return decode(store.get(checkpoint_path(table, newest)), newest, table)
        except ObjectMissing:
            continue  # it was deleted since, so there is a newer one


def decode(data: bytes, version: int, table: str) -> Checkpoint:
    """The checkpoint in the bytes of a Parquet file, of ours or of another writer. Raises CorruptLog."""
    try:
        content = _read(data)
        protocol = _present(content, "protocol").to_pylist()[0]
        metadata = _present(content, "metaData").to_pylist()[0]
        return Checkpoint(
            version,
            msgspec.convert(protocol, Protocol),
            _decode_metadata(metadata),
            _decode_txns(_present(content, "txn")),
            _decode_adds(_present(content, "add")),
            _decode_removes(_present(content, "remove")),
        )
    except _UNREADABLE as error:
        raise CorruptLog(
            f"checkpoint {version} of {table} cannot be read ({error}); if the commits before it still "
            "exist, delete the file and _last_checkpoint, else restore it"
        ) from None


_UNREADABLE = (
    pa.ArrowException,
    msgspec.ValidationError,
    # pyarrow and its conversions raise these for bytes that are no checkpoint.
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)


def _read(data: bytes) -> pa.Table:
    # Not pq.read_table: that loads Arrow's datasets at its first call, which takes as long as the rest.
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def _present(content: pa.Table, name: str) -> pa.StructArray:
    column = content.column(name).combine_chunks()
    return column.filter(column.is_valid())


def _decode_metadata(row: dict[str, object]) -> Metadata:
    form = row.get("format") or {}
    assert isinstance(form, dict)
    fixed = {
        **row,
        "format": Format(form.get("provider", "parquet"), dict(form.get("options") or [])),
        "configuration": dict(row.get("configuration") or []),  # type: ignore[call-overload]
        "partitionColumns": tuple(row.get("partitionColumns") or ()),  # type: ignore[arg-type]
    }
    return msgspec.convert(fixed, Metadata)


def _decode_txns(column: pa.StructArray) -> list[Txn]:
    fields = (column.field(name).to_pylist() for name in ("appId", "version", "lastUpdated"))
    return [Txn(*row) for row in zip(*fields, strict=True)]


def _decode_adds(column: pa.StructArray) -> list[Add]:
    names = ("path", "size", "modificationTime", "stats")
    fields = (column.field(name).to_pylist() for name in names)
    tags, values = _decode_maps(column.field("tags")), _decode_maps(column.field("partitionValues"))
    return [
        Add(path, size, modified, False, stats, tag, value or {})
        for path, size, modified, stats, tag, value in zip(*fields, tags, values, strict=True)
    ]


def _decode_maps(column: pa.MapArray) -> list[dict[str, str] | None]:
    """Maps as dicts, from the flat keys and items: ten times faster than to_pylist of a map."""
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    offsets, valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    base = offsets[0] if offsets else 0
    return [
        dict(zip(keys[a - base : b - base], items[a - base : b - base], strict=True)) if ok else None
        for a, b, ok in zip(offsets, offsets[1:], valid, strict=False)
    ]


def _decode_removes(column: pa.StructArray) -> list[Remove]:
    fields = (column.field(name).to_pylist() for name in ("path", "deletionTimestamp", "size"))
    values = _decode_maps(column.field("partitionValues"))
    return [
        Remove(path, False, deleted, size, True, value or {})
        for path, deleted, size, value in zip(*fields, values, strict=True)
    ]
