"""How far a mirror is, and how its topics become topics of this root."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from jobs.mirror.mirrors import change_copy, copies_of, mirror_named
from jobs.mirror.source import Range, Source
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.errors import InvalidArgument, Retriable
from log_tables.spelling import meant
from log_tables.topic_partition import TopicPartition

_LOOK_S = 0.1


class NotAtItsEnd(Retriable):
    """The copy of a topic has not reached the end of its source."""


class Progress(NamedTuple):
    """How far the copy of a partition is. `source` is None where the source does not say."""

    topic: str
    partition: int
    log_start: int
    position: int
    source: Range | None
    stopped: str

    @property
    def lag(self) -> int | None:
        """How many offsets are not copied yet."""
        return None if self.source is None else max(0, self.source.end - self.position)


def progress(cluster: Cluster, name: str, source: Source | None) -> list[Progress]:
    """How far each partition of the mirror `name` is, by `source` if that can be asked.

    Raises InvalidArgument, Unreachable, AuthorizationFailed.
    """
    cluster.refresh()
    mirror_named(cluster, name)
    return [*_progress(cluster, copies_of(cluster, name), source)]


def _progress(cluster: Cluster, copies: Collection[TopicRecord], source: Source | None) -> Iterator[Progress]:
    places = [TopicPartition(each.name, number) for each in copies for number in range(each.partitions)]
    ranges = source.ranges(places) if source is not None else {}
    for each in copies:
        for number in range(each.partitions):
            log, place = cluster.topic(each.name).partition(number), TopicPartition(each.name, number)
            log.refresh()
            stopped = each.mirrored.stopped if each.mirrored else ""
            yield Progress(*place, log.log_start, log.high_watermark, ranges.get(place), stopped)


def promote(
    cluster: Cluster, name: str, topics: Collection[str], source: Source | None, wait_s: float
) -> list[str]:
    """Make `topics` of the mirror `name`, or all of them, topics of this root; returns their names.

    Before, with a `source`, their copies are waited for to reach the ends that it has now. After, nothing is
    copied any more: the next append stands behind what was. Raises InvalidArgument, NotAtItsEnd, Unreachable.
    """
    cluster.refresh()
    mirror_named(cluster, name)
    copies = copies_of(cluster, name)
    for topic in topics:
        if topic not in {each.name for each in copies}:
            hint = (
                meant(topic, [each.name for each in copies]) or f"`lakelog mirror describe {name}` lists them"
            )
            raise InvalidArgument(f"the mirror {name} makes no topic {topic!r}; {hint}")
    chosen = [each for each in copies if not topics or each.name in topics]
    if source is not None:
        _await_ends(cluster, name, chosen, source, wait_s)
    for each in chosen:
        if change_copy(cluster, name, each.name, lambda _: None):
            topic_here = cluster.topic(each.name)
            for number in range(topic_here.partition_count):
                cluster.claim(topic_here, number)  # it ends the copy, wherever that runs
    return [each.name for each in chosen]


def _await_ends(
    cluster: Cluster, name: str, copies: Collection[TopicRecord], source: Source, wait_s: float
) -> None:
    for each in copies:
        if each.mirrored and each.mirrored.stopped:
            raise InvalidArgument(
                f"the copy of the topic {each.name} has stopped: {each.mirrored.stopped}; to keep what it "
                "has, add --now"
            )
    ends = {(at.topic, at.partition): at for at in _progress(cluster, copies, source)}
    waited_s = 0.0
    while behind := [at for at in _progress(cluster, copies, None) if _is_behind(at, ends)]:
        if waited_s >= wait_s:
            at, source_at = behind[0], ends[behind[0].topic, behind[0].partition].source
            end = "has no leader" if source_at is None else f"ends at {source_at.end}"
            raise NotAtItsEnd(
                f"the copy of {at.topic}-{at.partition} is at offset {at.position}, and its source {end}; "
                f"see that `lakelog mirror run {name}` runs, or add --now to promote without the rest"
            )
        cluster.clock.pause(_LOOK_S)
        waited_s += _LOOK_S


def _is_behind(now: Progress, ends: dict[tuple[str, int], Progress]) -> bool:
    source = ends[now.topic, now.partition].source
    return source is None or now.position < source.end
