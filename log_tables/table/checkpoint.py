"""A checkpoint: the state of a table at one version in one Parquet file, so that the table opens fast.

These are classic single-file checkpoints of the Delta protocol (section "Checkpoints"), written from memory.
A general Delta writer reads the log for them, which takes time that grows with the log (docs/decisions/).
"""

import io
from collections.abc import Iterator, Mapping, Sequence
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
from log_tables.table.commit import Add, Format, Metadata, Protocol
from log_tables.table.tombstones import REMOVE, Tombstones
from log_tables.table.txns import Txns

_ROWS = 32_768
"""So many rows are made or read at once: each has a null for every other kind of action, which takes 150
bytes."""

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
_SCHEMA = pa.schema(
    [
        ("txn", _TXN),
        ("add", _ADD),
        ("remove", REMOVE),
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
    txns: Txns
    adds: Sequence[Add]
    removes: Tombstones


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
        "txn": pa.StructArray.from_arrays(checkpoint.txns.columns(), fields=list(_TXN)),
        "add": _adds(checkpoint.adds),
        "remove": checkpoint.removes.rows(),
    }
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="snappy", write_page_checksum=True) as writer:
        for parts in _cut(kinds):
            writer.write_batch(_batch(parts))
    return sink.getvalue()


def _cut(kinds: Mapping[str, pa.StructArray]) -> Iterator[list[tuple[str, pa.StructArray]]]:
    """The actions of all kinds, one kind after the other, _ROWS at a time."""
    parts, room = list[tuple[str, pa.StructArray]](), _ROWS
    for name, column in kinds.items():
        start = 0
        while start < len(column):
            part = column.slice(start, room)
            parts.append((name, part))
            start, room = start + len(part), room - len(part)
            if not room:
                yield parts
                parts, room = [], _ROWS
    if parts:
        yield parts


def _batch(parts: Sequence[tuple[str, pa.StructArray]]) -> pa.RecordBatch:
    """A row for each action of `parts`, which are named after their kinds."""
    columns = (
        [part if name == field.name else pa.nulls(len(part), field.type) for name, part in parts]
        for field in _SCHEMA
    )
    return pa.record_batch([*map(pa.concat_arrays, columns)], schema=_SCHEMA)


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
        protocol = content["protocol"].to_pylist()[0]
        metadata = content["metaData"].to_pylist()[0]
        return Checkpoint(
            version,
            msgspec.convert(protocol, Protocol),
            _decode_metadata(metadata),
            Txns.of_columns(*_fields(content["txn"], "appId", "version", "lastUpdated")),
            _decode_adds(content["add"]),
            Tombstones.of_column(content["remove"]),
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


def _read(data: bytes) -> dict[str, pa.StructArray]:
    """The actions of each kind."""
    found = dict[str, list[pa.StructArray]]((name, []) for name in _SCHEMA.names)
    # Not pq.read_table: that loads Arrow's datasets at its first call, which takes as long as the rest.
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        kinds = {name: file.schema_arrow.field(name).type for name in _SCHEMA.names}
        for batch in file.iter_batches(_ROWS, columns=_SCHEMA.names, use_threads=False):
            for name, parts in found.items():
                column = batch.column(name)
                parts.append(column.filter(column.is_valid()))
    return {name: pa.chunked_array(parts, kinds[name]).combine_chunks() for name, parts in found.items()}


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


def _fields(column: pa.StructArray, *names: str) -> list[pa.Array]:
    return [column.field(name) for name in names]


def _decode_adds(column: pa.StructArray) -> list[Add]:
    if any(column.field(name).null_count for name in ("path", "size", "modificationTime")):
        raise ValueError("an add has no path, size or time")
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
