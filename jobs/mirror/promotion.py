"""How the copies of a mirror become topics of this root."""

from collections.abc import Collection

from jobs.mirror.source import Source
from log_tables.cluster.admin.mirror_admin import change_copy, copies_of, mirror_named
from log_tables.cluster.admin.mirror_progress import places_of, progress_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.errors import InvalidArgument, Retriable
from log_tables.spelling import meant

_LOOK_S = 0.1


class NotAtItsEnd(Retriable):
    """The copy of a topic has not reached the end of its source."""


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
    ends = source.ranges(places_of(copies))
    waited_s = 0.0
    while behind := [at for at in progress_of(cluster, copies, ends) if at.lag != 0]:
        if waited_s >= wait_s:
            at = behind[0]
            end = "has no leader" if at.source is None else f"ends at {at.source.end}"
            raise NotAtItsEnd(
                f"the copy of {at.topic}-{at.partition} is at offset {at.position}, and its source {end}; "
                f"see that `lakelog mirror run {name}` runs, or add --now to promote without the rest"
            )
        cluster.clock.pause(_LOOK_S)
        waited_s += _LOOK_S
