"""The gaps that mirrors were allowed to leave: offsets that a source had deleted before they were copied.

They are records of the internal topic `__lakelog_mirror_gaps`, in JSON, which are kept for ever. A gap is
noted before its copy goes on behind it, so one that is noted may not be left yet, or may be noted twice.
"""

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from log_tables.cluster.admin.internal_log import append_records, records_of
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog
from log_tables.layout import MIRROR_GAPS
from log_tables.record import Record

GAPS_SCHEMA = pa.schema(
    [
        pa.field("mirror", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("noted_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
    ]
)
"""The table `mirror_gaps`: one row for each gap."""


class MirrorGap(msgspec.Struct, frozen=True, kw_only=True):
    """A gap; `noted_ms` is milliseconds since 1970, and `topic_id` names the topic here."""

    mirror: str
    topic: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    noted_ms: int
    reason: str


def note_gaps(cluster: Cluster, gaps: Sequence[MirrorGap]) -> None:
    """Note gaps, durably and in one commit. Raises NotLeader, StoreUnavailable, …"""
    if gaps:
        records = [Record(msgspec.json.encode(gap)) for gap in gaps]
        append_records(cluster, MIRROR_GAPS, records, {}, "gaps of mirrors")


def mirror_gaps(cluster: Cluster, mirror: str = "") -> list[MirrorGap]:
    """The gaps of all mirrors, or of one, in the order in which they were noted, each once.

    One that its copy has not left, as the table of the partition says, is none. Of a topic that was deleted
    all count. Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    known: dict[tuple[str, int, int], MirrorGap] = {}
    for gap in _noted(cluster):
        key = gap.topic_id, gap.partition, gap.first_offset
        before = known.get(key)
        if (not mirror or gap.mirror == mirror) and (before is None or before.last_offset < gap.last_offset):
            known[key] = gap
    return [gap for gap in known.values() if _is_left(cluster, gap)]


def gaps_table(cluster: Cluster) -> pa.Table:
    """The rows of `mirror_gaps`, as GAPS_SCHEMA. Raises as `mirror_gaps`."""
    rows = map(msgspec.structs.asdict, mirror_gaps(cluster))
    return pa.Table.from_pylist([{**row, "noted_at": row["noted_ms"] * 1000} for row in rows], GAPS_SCHEMA)


def _noted(cluster: Cluster) -> Iterator[MirrorGap]:
    for records in records_of(cluster, MIRROR_GAPS):
        for record in records:
            try:
                yield msgspec.json.decode(record.value or b"", type=MirrorGap)
            except msgspec.MsgspecError as error:
                raise CorruptLog(
                    f"the record at offset {record.offset} of {MIRROR_GAPS} is not a gap ({error}); restore "
                    "the topic from a copy of the root"
                ) from None


def _is_left(cluster: Cluster, gap: MirrorGap) -> bool:
    name = cluster.name_of(gap.topic_id)
    if name is None:
        return True
    return cluster.topic(name).partition(gap.partition).refresh().mirrored > gap.last_offset
