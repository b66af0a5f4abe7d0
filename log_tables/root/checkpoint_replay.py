"""The check of a checkpoint: it is the table that the commits before it lead to, and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from log_tables.limits import BRIEF_PRODUCER_MIN_MS, TOMBSTONE_RETENTION_MS
from log_tables.root.commit_replay import check_claims
from log_tables.store.store import Data
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.commit import Metadata, Protocol, Txn
from log_tables.table.snapshot import Segment
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns

Culprit = Callable[[Segment, Segment], str]
"""Says of a segment by the commits, and the same by the checkpoint, which is wrong, and what to do."""


def check_rows(data: Data, checkpoint: Checkpoint) -> Iterator[str]:
    """The problems of the rows of a checkpoint file by themselves: an action that is there twice, stats and
    partition values that lakelog would not write.
    """
    due = {
        "protocol.minReaderVersion": 1,
        "metaData.id": 1,
        "txn.appId": len(checkpoint.txns),
        "add.path": len({add.path for add in checkpoint.adds}),
        "remove.path": len({*checkpoint.removes}),
    }
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        rows = file.read(columns=[*due], use_threads=False)
    for name, count in due.items():
        kind = name.split(".")[0]
        found = len(rows) - rows.column(kind).null_count
        if found != count:
            yield f"it has {found} rows of {kind} for {count}"
    if any(add.partitionValues for add in checkpoint.adds if "/" not in add.path):
        yield "its adds have partition values"
    for add in checkpoint.adds:
        yield from check_claims(add)
    removes = checkpoint.removes.rows()
    values = removes.field("partitionValues")
    partitions = [path.split("/")[0] for path in removes.field("path").to_pylist() if "/" in path]
    given = zip(values.keys.to_pylist(), values.items.to_pylist(), strict=True)
    if partitions != [f"{name}={value}" for name, value in given]:
        yield "its removes have other partition values than their paths"


def check_table(protocols: tuple[Protocol, Protocol], metadata: tuple[Metadata, Metadata]) -> Iterator[str]:
    """Protocol and metaData, each by the commits and by the checkpoint, are the same."""
    if protocols[0] != protocols[1]:
        yield "its protocol is another"
    due, found = map(msgspec.structs.asdict, metadata)
    for name in due:
        if due[name] != found[name]:
            said = f"its metaData has {name} {_shown(found[name])}"
            yield f"{said}, and the commits before it {_shown(due[name])}"


def check_txns(due: Txns, found: Txns, first_ms: int | None, made_ms: int, kept_ms: int) -> Iterator[str]:
    """The txns are the same, but for producers that were idle for long.

    `due` are those of the commits, from a checkpoint that was made at `first_ms`, or from version 0 if that
    is None. The file was made at `made_ms`, and producers are kept for `kept_ms` (milliseconds).
    """
    for app_id, txn in due.items():
        other = found.get(app_id)
        if other is None and not _forgotten(txn, made_ms - min(kept_ms, BRIEF_PRODUCER_MIN_MS) // 2):
            yield f"it lacks {app_id}, which the commits before it set to {txn.version}"
        elif other is not None and other != txn:
            yield f"it has {app_id} {_text(other)}, and the commits before it {_text(txn)}"
    for app_id in found:
        if app_id not in due and (first_ms is None or not _forgotten(found[app_id], first_ms)):
            yield f"it has {app_id} {_text(found[app_id])}, which the commits before it do not set"


def _forgotten(txn: Txn, before_ms: int) -> bool:
    """Whether a txn is that of a producer that was idle since, so that it may be left out."""
    return txn.last_updated is not None and txn.last_updated < before_ms


def _text(txn: Txn) -> str:
    return f"{txn.version}" if txn.last_updated is None else f"{txn.version} of {txn.last_updated}"


def check_segments(
    due: Sequence[Segment], found: Sequence[Segment], culprit: Culprit, remedy: str
) -> Iterator[str]:
    """The segments are the same, and each says the same; `remedy` is for those that only one has."""
    of = {item.path: item for item in found}
    for item in due:
        other = of.pop(item.path, None)
        if other is None:
            yield f"it lacks the segment {item.path}; {remedy}"
        elif other != item:
            names = [name for name in item.__struct_fields__ if getattr(item, name) != getattr(other, name)]
            yield (
                f"it has {names[0]} {_shown(getattr(other, names[0]))} of segment {item.path}, and the "
                f"commits before it {_shown(getattr(item, names[0]))}: {culprit(item, other)}"
            )
    for path in of:
        yield f"it has the segment {path}, which the commits before it do not; {remedy}"


def check_removes(due: Tombstones, found: Tombstones, first_ms: int | None, made_ms: int) -> Iterator[str]:
    """The removed files are the same, but for old ones."""
    here, there = _times(due), _times(found)
    told = {remove.path: remove for remove in due.deleted()}
    for remove in found.deleted():
        if told.get(remove.path, remove) != remove:
            yield f"its remove of {remove.path} has other stats or tags than that of the commits before it"
    for path, said in there.items():
        if path not in here:
            if first_ms is None or (said[0] or 0) >= first_ms:
                yield f"it has removed {path}, which the commits before it do not"
        elif here[path] != said:
            yield f"its remove of {path} says {said}, and that of the commits before it {here[path]}"
    for path, (removed_ms, _) in here.items():
        if path not in there and (removed_ms or 0) > made_ms - TOMBSTONE_RETENTION_MS // 2:
            yield f"it lacks the remove of {path}"


def _times(removes: Tombstones) -> Mapping[str, tuple[int | None, int | None]]:
    rows = removes.rows()
    columns = (rows.field(name).to_pylist() for name in ("path", "deletionTimestamp", "size"))
    return {path: (time, size) for path, time, size in zip(*columns, strict=True)}


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
