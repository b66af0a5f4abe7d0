"""How far the copies of a mirror are, by their tables, and by what its source or its processes say."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from log_tables.cluster.admin.mirror_admin import copies_of, mirror_named
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.table.snapshot import Snapshot
from log_tables.topic_partition import TopicPartition


class SourceRange(NamedTuple):
    """A partition of the source: the offset of its first record, and the one behind its last stable record;
    and for how many seconds the copy has lacked records of it, where that is known.
    """

    start: int
    end: int
    behind_s: float | None = None


class Progress(NamedTuple):
    """How far the copy of a partition is. `source` is None where nobody says.

    `record_bytes` is what an offset of the copy takes in its table, on average.
    """

    topic: str
    partition: int
    log_start: int
    position: int
    record_bytes: float
    source: SourceRange | None
    stopped: str

    @property
    def lag(self) -> int | None:
        """How many offsets are not copied yet."""
        return None if self.source is None else max(0, self.source.end - self.position)

    @property
    def lag_seconds(self) -> float | None:
        """For how long there has been something at the source that is not here."""
        return 0.0 if self.lag == 0 else None if self.source is None else self.source.behind_s

    @property
    def lag_bytes(self) -> int | None:
        """About how many bytes the missing records will take here."""
        return None if self.lag is None else int(self.lag * self.record_bytes)


def progress(
    cluster: Cluster, name: str, ranges: Mapping[TopicPartition, SourceRange] | None = None
) -> list[Progress]:
    """How far each partition of the mirror `name` is, beside `ranges` of its source.

    Reads the tables. Raises NotFound.
    """
    cluster.refresh()
    mirror_named(cluster, name)
    return [*progress_of(cluster, copies_of(cluster, name), ranges or {})]


def progress_of(
    cluster: Cluster, copies: Collection[TopicRecord], ranges: Mapping[TopicPartition, SourceRange]
) -> Iterator[Progress]:
    """How far each partition of these topics is."""
    for each in copies:
        for number in range(each.partitions):
            log, place = cluster.topic(each.name).partition(number), TopicPartition(each.name, number)
            source, known = ranges.get(place), log.snapshot
            level = source is not None and known.high_watermark >= source.end  # there is nothing to look for
            snapshot = known if level else log.refresh()
            yield progress_at(place, snapshot, source, each.mirrored.stopped if each.mirrored else "")


def progress_at(
    place: TopicPartition, snapshot: Snapshot, source: SourceRange | None, stopped: str
) -> Progress:
    """How far the copy of a partition is that has this `snapshot`."""
    start, end = snapshot.log_start, snapshot.high_watermark
    return Progress(*place, start, end, _record_bytes(snapshot), source, stopped)


def _record_bytes(snapshot: Snapshot) -> float:
    segments = snapshot.between(snapshot.log_start, snapshot.high_watermark)
    offsets = snapshot.high_watermark - snapshot.log_start
    return sum(each.size for each in segments) / offsets if offsets else 0.0


def places_of(copies: Collection[TopicRecord]) -> list[TopicPartition]:
    """The partitions of these topics."""
    return [TopicPartition(each.name, number) for each in copies for number in range(each.partitions)]


def reported(reports: Collection[MirrorReport]) -> dict[TopicPartition, SourceRange]:
    """The source as the processes of a mirror report it; of a partition that two have, the later end."""
    found: dict[TopicPartition, SourceRange] = {}
    for report in reports:
        for topic, partitions in report.topics.items():
            for each in partitions:
                place, at = (
                    TopicPartition(topic, each.partition),
                    SourceRange(each.start, each.end, each.behind_s),
                )
                if place not in found or found[place].end < at.end:
                    found[place] = at
    return found
