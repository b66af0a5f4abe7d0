"""Internal topics of one partition, to which any process appends, one commit at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.keyed_log import WRITERS_RACE
from log_tables.errors import NotLeader, TopicExists
from log_tables.limits import BATCH_MAX_BYTES, METADATA_ATTEMPTS_MAX
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch, to_records

LOOKED_AT = 2_000
"""Records that are in memory at once when a log is read from its end."""


def append_records(
    cluster: Cluster, topic: str, records: Sequence[Record], configs: Mapping[str, str], what: str
) -> None:
    """Append `records`, at least one, in one commit to an internal topic, which is made with `configs` where
    it is not there. `what` they are is for the error.

    Raises NotLeader when too many processes append, StoreUnavailable, …
    """
    partition = _partition(cluster, topic, configs)
    batch = input_batch(records, cluster.clock.now_us())
    # Another process may append at the same time.
    for _ in WRITERS_RACE.attempts(cluster.clock, METADATA_ATTEMPTS_MAX):
        with suppress(NotLeader):
            if not partition.leading:
                partition.claim(cluster.url)
            partition.append([AppendRequest(batch)])
            return
    raise NotLeader(f"too many processes append {what} at once; run fewer of them")


def _partition(cluster: Cluster, topic: str, configs: Mapping[str, str]) -> Partition:
    known = cluster.cached_topic(topic)
    if known is None:
        try:
            known = create_topic(cluster, topic, 1, configs, internal=True)
        except TopicExists:
            known = cluster.topic(topic)
    return known.partition(0)


def records_of(cluster: Cluster, topic: str) -> Iterator[list[Record]]:
    """The records of an internal topic, a batch at a time; none where it is not there as last refreshed.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    known = cluster.cached_topic(topic)
    if known is None:
        return
    partition = known.partition(0)
    partition.refresh()
    at = partition.log_start
    while at < partition.high_watermark:
        plan = partition.plan_read(at, BATCH_MAX_BYTES)
        for batch in partition.read(plan):
            yield to_records(batch)
        at = plan.end


def records_before(cluster: Cluster, topic: str, most: int | None = None) -> Iterator[Record]:
    """The records of an internal topic, the newest first, at most so many; none where it is not there.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    known = cluster.cached_topic(topic)
    if known is None:
        return
    partition = known.partition(0)
    partition.refresh()
    end = partition.high_watermark
    last = partition.log_start if most is None else max(partition.log_start, end - most)
    while end > last:
        at = first = max(last, end - LOOKED_AT)
        found: list[Record] = []
        while at < end:
            plan = partition.plan_read(at, BATCH_MAX_BYTES)
            for batch in partition.read(plan):
                found += (each for each in to_records(batch) if (each.offset or 0) < end)
            at = plan.end
        yield from reversed(found)
        end = first
