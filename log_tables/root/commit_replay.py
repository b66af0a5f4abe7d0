"""The check of one commit: what follows from its other actions and from the table before it is derived again.

The invariants say what must never happen to a log. This says what lakelog would have written: a commit that
differs was changed afterwards.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from log_tables.layout import (
    TXN_CLEANED,
    TXN_DELETED,
    TXN_HIGH_WATERMARK,
    TXN_LEADER,
    TXN_LEADER_BROKER,
    TXN_LOG_START,
    TXN_MIRRORED,
    TXN_TIERED,
    log_epoch_of_txn,
    producer_end_txn,
    producer_of_txn,
    producer_sequence_txn,
)
from log_tables.limits import KEPT_PRODUCER_ID_MIN, SEQUENCE_MODULUS
from log_tables.table.commit import (
    RESTORE,
    VACUUM,
    Add,
    Commit,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    Txn,
    file_metrics,
)
from log_tables.table.invariant import CommitKind, is_ours, kind_of
from log_tables.table.snapshot import Segment, Snapshot, segment_of

CHANGED = "was changed after it was written"
"""So a problem of a commit begins that a program other than lakelog's must have made."""

_ACTIONS: Mapping[str, type[msgspec.Struct]] = {
    "commitInfo": CommitInfo,
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "add": Add,
    "remove": Remove,
}
_FIELDS = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(struct))
    for kind, struct in _ACTIONS.items()
}
_ONCE = ("commitInfo", "protocol", "metaData")
_NAMED = (
    TXN_HIGH_WATERMARK,
    TXN_LOG_START,
    TXN_LEADER,
    TXN_LEADER_BROKER,
    TXN_CLEANED,
    TXN_MIRRORED,
    TXN_TIERED,
    TXN_DELETED,
)
_BY_LEADERS = (CommitKind.APPEND, CommitKind.MIRROR)
_FIRST = ("CREATE TABLE", "CLONE")
_HEX = frozenset("0123456789abcdef")
_TXNS_OF = {
    "CLAIM": {TXN_LEADER, TXN_LEADER_BROKER, TXN_DELETED},
    "WRITE": {TXN_HIGH_WATERMARK},
    "MIRROR": {TXN_HIGH_WATERMARK, TXN_MIRRORED},
    "OPTIMIZE": set[str](),
    "UPDATE": set[str](),
    "ADD COLUMNS": set[str](),
    "SET TBLPROPERTIES": set[str](),
    "COMPACT": {TXN_CLEANED},
    "DELETE RECORDS": {TXN_LOG_START},
    "TIER": {TXN_HIGH_WATERMARK, TXN_TIERED},
    RESTORE: {TXN_LOG_START},
    VACUUM: set[str](),
}
"""The txns that each operation sets, besides those of producers."""

_CHANGES = {
    "WRITE": True,
    "MIRROR": True,
    "OPTIMIZE": False,
    "UPDATE": True,
    "COMPACT": True,
    "DELETE RECORDS": True,
    "TIER": True,
    RESTORE: False,
}
"""The `dataChange` of the files of each operation."""


def check_shape(data: bytes) -> Iterator[str]:
    """The problems of the lines of a commit file: an action that is there twice, or that nobody writes."""
    try:
        yield from _lines(data)
    except (ValueError, TypeError, RecursionError) as error:
        yield f"it has a value that lakelog does not write ({str(error)[:80]})"


def _lines(data: bytes) -> Iterator[str]:
    seen, keys = dict[str, int](), set[tuple[str, str]]()
    for number, line in enumerate(filter(None, data.splitlines())):
        found = msgspec.json.decode(line)
        kind, action = next(iter(found.items()), ("", None))
        if len(found) != 1 or kind not in _ACTIONS or not isinstance(action, dict):
            yield f"it has a line that lakelog does not write: {line[:80]!r}"
            continue
        seen[kind] = seen.get(kind, 0) + 1
        if (kind == "commitInfo") != (number == 0):
            yield "its commitInfo is not its first line"
        unknown = action.keys() - _FIELDS[kind]
        if unknown:
            yield f"its {kind} has the field {min(unknown)}, which lakelog does not write"
        if kind == "metaData" and "provider" not in (action.get("format") or {}):
            yield "its metaData names no format"
        key = action.get("appId", action.get("path"))
        if key is not None:
            if (kind, key) in keys:
                yield f"it has the {kind} of {key} twice"
            keys.add((kind, key))
    for kind in _ONCE:
        if seen.get(kind, 0) > 1:
            yield f"it has {seen[kind]} actions {kind}"


def check_commit(before: Snapshot, commit: Commit) -> Iterator[str]:
    """The problems of `commit`, a later one of the table `before`, which breaks no invariant."""
    yield from _info(before, commit)
    yield from _operation(before, commit)
    yield from _txns(before, commit)
    yield from check_adds(commit.adds)
    yield from _removes(before, commit)
    if commit.metadata is not None:
        yield from _metadata(before, commit)


def check_first(commit: Commit) -> Iterator[str]:
    """The problems of version 0."""
    if commit.info.operation not in _FIRST:
        yield f"it is the first, and its operation is {commit.info.operation!r}"
    if not is_ours(commit):
        yield f"it names {commit.info.engineInfo!r} as its writer"
    if commit.removes:
        yield "it is the first, and it removes files"
    if commit.info.operation == "CREATE TABLE":
        said = {txn.app_id: txn.version for txn in commit.txns}
        if said != dict.fromkeys((TXN_HIGH_WATERMARK, TXN_LOG_START, TXN_LEADER), 0) or commit.adds:
            yield "it creates a table that is not empty"
    yield from check_info(commit.info)
    yield from check_adds(commit.adds)


def check_info(info: CommitInfo) -> Iterator[str]:
    """The problems of what any commit says of its origin."""
    if len(info.batchId) != 32 or not _HEX.issuperset(info.batchId):
        yield f"its batchId is {info.batchId!r}, not 32 hexadecimal digits"
    if info.timestamp <= 0:
        yield f"its timestamp is {info.timestamp}"
    if info.operationMetrics and info.operation != "COMPACT":
        yield f"{info.operation} has operationMetrics"


def _info(before: Snapshot, commit: Commit) -> Iterator[str]:
    info, kind = commit.info, kind_of(before, commit)
    yield from check_info(info)
    leader = next((txn.version for txn in commit.txns if txn.app_id == TXN_LEADER), None)
    if kind is CommitKind.CLAIM:
        if leader != before.leader_epoch + 1:
            yield f"it claims with the leader epoch {leader}, after {before.leader_epoch}"
        if info.leaderEpoch != leader:
            yield f"its leaderEpoch is {info.leaderEpoch}, and it claims with {leader}"
    elif kind in _BY_LEADERS and info.leaderEpoch != before.leader_epoch:
        yield f"it appends with the leader epoch {info.leaderEpoch}, and the leader has {before.leader_epoch}"
    elif leader is not None:
        yield f"it sets {TXN_LEADER} to {leader} again"
    if kind is not CommitKind.APPEND and info.producers:
        yield "it appends nothing, and names producers"


def _operation(before: Snapshot, commit: Commit) -> Iterator[str]:
    """The actions are those of the operation that it names."""
    name = commit.info.operation
    if name not in _TXNS_OF:
        yield f"it has the operation {name!r}, which lakelog does not have"
        return
    set_here = {txn.app_id for txn in commit.txns if producer_of_txn(txn.app_id) is None}
    if name == "CLAIM":
        set_here = {app_id for app_id in set_here if log_epoch_of_txn(app_id) is None}
    for app_id in sorted(set_here - _TXNS_OF[name]):
        yield f"it sets {app_id}, which {name} does not set"
    if (commit.metadata is not None) != (name in ("ADD COLUMNS", "SET TBLPROPERTIES")):
        yield f"{name} {'has' if commit.metadata is not None else 'lacks'} metaData"
    if commit.protocol is not None:
        yield "it sets the protocol again"
    changes = {add.dataChange for add in commit.adds} | {remove.dataChange for remove in commit.removes}
    if changes and changes != {_CHANGES.get(name)}:
        yield f"{name} has files with dataChange {', '.join(map(str, sorted(changes)))}"
    check = _OF_OPERATION.get(name)
    if check is not None:
        yield from check(before, commit)


def _claimed(_: Snapshot, commit: Commit) -> Iterator[str]:
    if not any(txn.app_id == TXN_LEADER for txn in commit.txns):
        yield "it claims without a leader epoch"


def _written(before: Snapshot, commit: Commit) -> Iterator[str]:
    if kind_of(before, commit) is not CommitKind.APPEND:
        yield "it appends without a high watermark"
    yield from _producers(commit)


def _mirrored(before: Snapshot, commit: Commit) -> Iterator[str]:
    if kind_of(before, commit) is not CommitKind.MIRROR:
        yield "it mirrors without saying how far"


def _producers(commit: Commit) -> Iterator[str]:
    """The batches lie in the segment, one after the other, and the txns are what they leave."""
    end, states = -1, dict[int, tuple[int, int]]()
    for made in commit.info.producers:
        held = [segment_of(add) for add in commit.adds]
        outside = not any(
            item.base_offset <= made.base_offset and made.base_offset + made.count <= item.last_offset + 1
            for item in held
        )
        if made.base_offset < end or made.count < 1 or outside:
            yield f"the batch of producer {made.id} at offset {made.base_offset} is not in its segment"
        end = made.base_offset + made.count
        following = (made.sequence + made.count) % SEQUENCE_MODULUS
        states[made.id] = (made.epoch << 32) + following, end
    due = {}
    for producer_id, (packed, last) in states.items():
        due[producer_sequence_txn(producer_id)] = packed
        due[producer_end_txn(producer_id)] = last
    said = {txn.app_id: txn.version for txn in commit.txns if producer_of_txn(txn.app_id) is not None}
    for app_id in sorted({*due, *said}):
        if due.get(app_id) != said.get(app_id):
            yield f"it sets {app_id} to {said.get(app_id)}, and its batches lead to {due.get(app_id)}"


def _merged(before: Snapshot, commit: Commit) -> Iterator[str]:
    gone, made = _sides(before, commit)
    if made and gone:
        yield from _same_time(made[-1], gone[-1])
        if tuple(step for item in gone for step in item.horizons) != made[0].horizons:
            yield f"the horizons of {made[0].path} are not those of the files that it replaces"


def _retyped(before: Snapshot, commit: Commit) -> Iterator[str]:
    gone, made = _sides(before, commit)
    if [*map(_extent, gone)] != [*map(_extent, made)]:
        yield "it does not put a file of the same records in the place of each that it removes"
        return
    for old, item in zip(gone, made, strict=True):
        yield from _same_time(item, old)
        if old.horizons != item.horizons:
            yield f"the horizons of {item.path} are not those of {old.path}"


def _extent(item: Segment) -> tuple[int, int, int]:
    return item.base_offset, item.last_offset, item.records


def _compacted(before: Snapshot, commit: Commit) -> Iterator[str]:
    cleaned = next((txn.version for txn in commit.txns if txn.app_id == TXN_CLEANED), None)
    ends = {before.cleaned, *(item.last_offset + 1 for item in before.segments)}
    gone, made = _sides(before, commit)
    if cleaned is None or cleaned not in ends or (gone and cleaned < gone[-1].last_offset + 1):
        yield f"it sets {TXN_CLEANED} to {cleaned}, which is not the end of what it compacts"
    said, found = commit.info.operationMetrics, file_metrics(commit.adds, commit.removes)
    if said and said != found:
        yield f"it says that its files are {said}, and they are {found}"
    last = before.high_watermark - 1
    ended = bool(gone) and gone[-1].last_offset == last >= before.log_start
    if ended and (not made or made[-1].last_offset != last):
        yield f"it drops the last record, offset {last}, which always stays"
    times = {item.modification_time for item in gone}
    for item in made:
        if item.modification_time not in times:
            yield f"the modificationTime of {item.path} is that of none of the files that it replaces"
        keys, values, _ = item.nulls
        if values and not keys and not item.horizons:
            yield f"{item.path} has tombstones, and no time from which they may be dropped"


def _truncated(before: Snapshot, commit: Commit) -> Iterator[str]:
    start = next((txn.version for txn in commit.txns if txn.app_id == TXN_LOG_START), None)
    if start is None or start > before.high_watermark:
        yield f"it sets {TXN_LOG_START} to {start}, and the log ends at {before.high_watermark}"
    if before.cluster is not None:
        return  # a remote table may end below the log start of its partition
    below = {item.path for item in before.segments if start is not None and item.last_offset < start}
    if below != {remove.path for remove in commit.removes}:
        yield f"it does not remove the very segments below the log start {start}"


def _moved(before: Snapshot, commit: Commit) -> Iterator[str]:
    if before.cluster is not None:
        if not commit.adds:
            yield "it moves no files here"
        return
    border = next((txn.version for txn in commit.txns if txn.app_id == TXN_TIERED), None)
    gone, _ = _sides(before, commit)
    due = gone[-1].last_offset + 1 if gone else None
    if border != due:
        yield f"it sets {TXN_TIERED} to {border}, and what it moves ends at {due}"


_OF_OPERATION: Mapping[str, Callable[[Snapshot, Commit], Iterator[str]]] = {
    "CLAIM": _claimed,
    "WRITE": _written,
    "MIRROR": _mirrored,
    "OPTIMIZE": _merged,
    "UPDATE": _retyped,
    "COMPACT": _compacted,
    "DELETE RECORDS": _truncated,
    "TIER": _moved,
}


def _sides(before: Snapshot, commit: Commit) -> tuple[list[Segment], list[Segment]]:
    """The segments that a rewrite removes, and those that it adds, in order."""
    names = {remove.path for remove in commit.removes}
    gone = [item for item in before.segments if item.path in names]
    return gone, sorted(map(segment_of, commit.adds), key=lambda item: item.base_offset)


def _same_time(made: Segment, newest: Segment) -> Iterator[str]:
    if made.modification_time != newest.modification_time:
        yield (
            f"the modificationTime of {made.path} is {made.modification_time}, and {newest.path}, the newest "
            f"file that it replaces, has {newest.modification_time}"
        )


def _txns(before: Snapshot, commit: Commit) -> Iterator[str]:
    """The txns of a commit that are wrong: set by nobody, below 0, or with a time where none may be."""
    for txn in commit.txns:
        producer = producer_of_txn(txn.app_id)
        if producer is None and txn.app_id not in _NAMED and log_epoch_of_txn(txn.app_id) is None:
            yield f"it sets {txn.app_id}, which lakelog does not have"
        if txn.version < (txn.app_id == TXN_DELETED):
            yield f"it sets {txn.app_id} to {txn.version}"
        kept = producer is None or producer[0] >= KEPT_PRODUCER_ID_MIN
        known = None if producer is None else before.producer(producer[0])
        if (kept or (known is not None and known.kept)) != (txn.last_updated is None):
            yield f"it sets {txn.app_id} {'with' if txn.last_updated is not None else 'without'} lastUpdated"
        elif txn.last_updated is not None and txn.last_updated <= 0:
            yield f"the lastUpdated of {txn.app_id} is {txn.last_updated}"


def check_adds(adds: Iterable[Add]) -> Iterator[str]:
    """The adds of a partition's table: a segment is all that each says."""
    for add in adds:
        yield from check_claims(add)
        if add.partitionValues:
            yield f"the add of {add.path} has partition values"


def check_claims(add: Add) -> Iterator[str]:
    """The tags, stats, size and time of an add are those of a segment. It may lack tags."""
    if min(add.size, add.modificationTime) < 0:
        yield f"the size or the modificationTime of {add.path} is below 0"
    said = _unlike(add.stats or "", tuple((add.tags or {}).items()))
    if said is not None:
        yield f"the add of {add.path} has {said}"


@lru_cache(1 << 14)
def _unlike(stats: str, tags: tuple[tuple[str, str], ...]) -> str | None:
    """The claim that no segment makes. Many checkpoints have the same add, so it is remembered."""
    try:
        return _other_claim(stats, dict(tags))
    except (ValueError, TypeError, RecursionError) as error:
        return f"stats or tags that no segment has ({str(error)[:80]})"


def _other_claim(stats: str, had: Mapping[str, str]) -> str | None:
    due = segment_of(Add("any.parquet", 0, 0, False, stats, dict(had))).add(False)
    full = due.tags or {}
    if had != full and had != {name: tag for name, tag in full.items() if name in had}:
        return f"the tags {had}, and lakelog would write {full}"
    if stats != due.stats and msgspec.json.decode(stats) != msgspec.json.decode(due.stats or "{}"):
        return "more or less stats than those of a segment"
    return None


def _removes(before: Snapshot, commit: Commit) -> Iterator[str]:
    if not commit.removes:
        return
    known = {item.path: item for item in before.segments}
    for remove in commit.removes:
        yield from check_remove(remove, known.get(remove.path))
        if remove.partitionValues:
            yield f"the remove of {remove.path} has partition values"
        yield from _check_deleted(before, remove, known.get(remove.path))


def _check_deleted(before: Snapshot, remove: Remove, item: Segment | None) -> Iterator[str]:
    """A remove that says how to bring its segment back says of it what the table does."""
    if item is None or (remove.stats is None and remove.tags is None):
        return
    due = item.delete(remove.deletionTimestamp or 0, before.log_start)
    if (remove.stats, remove.tags) != (due.stats, due.tags):
        yield f"the remove of {remove.path} has other stats or tags than its segment"


def check_remove(remove: Remove, item: Segment | None) -> Iterator[str]:
    """The size of a remove is that of its segment `item`, where that is known, and it says when."""
    if item is not None and remove.size != item.size:
        yield f"it removes {remove.path} with {remove.size} bytes, and the file has {item.size}"
    if remove.deletionTimestamp is None or remove.deletionTimestamp < 0:
        yield f"the deletionTimestamp of {remove.path} is {remove.deletionTimestamp}"


def _metadata(before: Snapshot, commit: Commit) -> Iterator[str]:
    """A later metaData has another schema, or other properties, and is otherwise the one before."""
    made = commit.metadata
    assert made is not None
    was = msgspec.structs.asdict(before.metadata)
    free = {"schemaString"} if commit.info.operation == "ADD COLUMNS" else {"configuration"}
    if before.metadata.configuration.get("lakelog.format") is not None:
        free.add("id")  # an adopted root has another
    for name, value in msgspec.structs.asdict(made).items():
        if name not in free and value != was[name]:
            yield f"it changes {name} of the table"
