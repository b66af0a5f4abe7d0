"""A mirror as its watchers see it: how far its copies are, and which of its processes live.

What processes report counts only while they live: of a mirror without any, the ends of the source are not
known, and no lag is.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from log_tables.cluster.admin.mirror_admin import copies_of
from log_tables.cluster.admin.mirror_progress import Progress, SourceRange, progress_of, reported
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirrorRecord, TopicRecord
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.cluster.process_report import ProcessWatch, await_reports
from log_tables.layout import mirror_directory
from log_tables.topic_partition import TopicPartition

_READERS = 16


class MirrorLag(NamedTuple):
    """The lag of several copies together: records, seconds of the one that lags most, about how many
    bytes.
    """

    records: int
    seconds: float | None
    size_bytes: int


class MirrorView(NamedTuple):
    """A mirror, some of its copies, how far these are, and the reports of the processes that live."""

    mirror: MirrorRecord
    copies: Sequence[TopicRecord]
    partitions: Sequence[Progress]
    processes: Sequence[MirrorReport]

    @property
    def lag(self) -> MirrorLag | None:
        """The lag of all copies together, as far as it is known; None where nobody knows the source."""
        return total([each for each in self.partitions if each.source is not None])

    @property
    def stopped(self) -> Mapping[str, str]:
        """Why topics have stopped, by their names."""
        return stopped(self.copies)

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why processes that live copy nothing now, by their names."""
        return {each.process: each.trouble for each in self.processes if each.trouble}

    @property
    def offsets_behind(self) -> int:
        """How many committed offsets of groups are not here yet."""
        return sum(each.offsets_behind for each in self.processes)


def total(found: Collection[Progress]) -> MirrorLag | None:
    """The lag of several partitions together; None of none."""
    if not found:
        return None
    seconds = [each.lag_seconds for each in found]
    known = [each for each in seconds if each is not None]
    return MirrorLag(
        sum(each.lag or 0 for each in found),
        max(known) if len(known) == len(seconds) else None,
        sum(each.lag_bytes or 0 for each in found),
    )


def stopped(copies: Collection[TopicRecord]) -> dict[str, str]:
    """Why topics have stopped, by their names."""
    return {each.name: each.mirrored.stopped for each in copies if each.mirrored and each.mirrored.stopped}


def state_of(stopped: str, paused: bool) -> str:
    """`stopped`, `paused` or `active`: whether a copy is to be made now."""
    return "stopped" if stopped else "paused" if paused else "active"


def view_of(
    cluster: Cluster,
    mirror: MirrorRecord,
    processes: Sequence[MirrorReport],
    ranges: Mapping[TopicPartition, SourceRange] | None = None,
    shows: Callable[[str], bool] = lambda _: True,
) -> MirrorView:
    """The view of a mirror, of the topics that it `shows`. `ranges` of the source are newer than those that
    its `processes` report. Reads the tables, several at a time.
    """
    copies = [each for each in copies_of(cluster, mirror.name) if shows(each.name)]
    known = dict(_with_seconds(ranges or {}, reported(processes)))
    with ThreadPoolExecutor(_READERS, thread_name_prefix="mirror-view") as pool:
        found = pool.map(lambda each: [*progress_of(cluster, [each], known)], copies)
        partitions = [each for some in found for each in some]
    return MirrorView(mirror, copies, partitions, processes)


def _with_seconds(
    ranges: Mapping[TopicPartition, SourceRange], said: Mapping[TopicPartition, SourceRange]
) -> Iterator[tuple[TopicPartition, SourceRange]]:
    """The newest that is known of each partition, and since when its copy lags, as processes say."""
    yield from said.items()
    for place, at in ranges.items():
        yield place, at._replace(behind_s=said[place].behind_s if place in said else None)


def mirror_watch(cluster: Cluster, mirror: str) -> ProcessWatch:
    """Which processes of `mirror` live."""
    return ProcessWatch(cluster.store, cluster.clock, mirror_directory(mirror))


def await_mirrors(cluster: Cluster, mirrors: Collection[str]) -> dict[str, list[MirrorReport]]:
    """The reports of the processes of each mirror that live, as `await_reports` has them."""
    watches = {name: mirror_watch(cluster, name) for name in mirrors}
    return await_reports(cluster.clock, watches, MirrorReport)
