"""How the copies of a mirror become topics of this root."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from log_tables.cluster.admin.mirror_admin import check_unstopped, chosen_copies, mirror_named, promote_copies
from log_tables.cluster.admin.mirror_progress import places_of, progress_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.errors import Retriable

if TYPE_CHECKING:
    from jobs.mirror.source import (
        Source,  # it needs confluent-kafka, and a promotion without a source does not
    )

_LOOK_S = 0.1


class NotAtItsEnd(Retriable):
    """The copy of a topic has not reached the end of its source."""


def promote(
    cluster: Cluster,
    name: str,
    topics: Collection[str],
    source: "Source | None",
    wait_s: float,
    bring_groups: Callable[[Collection[str]], object] = lambda _: None,
    prepares: bool = False,
) -> list[str]:
    """Make `topics` of the mirror `name`, or all of them, topics of this root; returns their names.

    Before, with a `source`, their copies are waited for to reach the ends that it has now, and then
    `bring_groups` brings the offsets of groups in them over. After, nothing is copied any more: the next
    append stands behind what was. If it only `prepares`, nothing is promoted. Raises NotFound,
    InvalidArgument, NotAtItsEnd, Unreachable, and what `bring_groups` raises.
    """
    cluster.refresh()
    chosen = chosen_copies(cluster, name, topics)
    if source is not None:
        _await_ends(cluster, name, chosen, source, wait_s)
        bring_groups({each.name for each in chosen})
    return [each.name for each in chosen] if prepares else promote_copies(cluster, name, chosen)


def _check_partitions(copies: Collection[TopicRecord], there: Mapping[str, int]) -> None:
    for each in copies:
        if there.get(each.name, 0) > each.partitions:
            raise NotAtItsEnd(
                f"the source of {each.name} has {there[each.name]} partitions, and the copy "
                f"{each.partitions}; see that the mirror runs and repeat this, or add --now to promote "
                "without the rest"
            )


def _await_ends(
    cluster: Cluster, name: str, copies: Collection[TopicRecord], source: "Source", wait_s: float
) -> None:
    from jobs.mirror.same_source import check_same_cluster, check_same_topic

    check_unstopped(copies)
    check_same_cluster(mirror_named(cluster, name), source)
    ids = source.ids([each.name for each in copies])
    for each in copies:
        check_same_topic(each, ids[each.name])
    _check_partitions(copies, source.topics())
    ends = source.ranges(places_of(copies))
    for at in progress_of(cluster, copies, ends):
        if at.source is not None and at.source.end < at.position:
            raise NotAtItsEnd(
                f"the copy of {at.topic}-{at.partition} is at offset {at.position}, and its source ends at "
                f"{at.source.end}: the source lost records; add --now to keep what was copied"
            )
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
