"""Transactional ids of a root that was copied: clients of the original may not go on with them here.

A transaction that was open when the root was copied has records in staged files. The copy may have some of
them, or none, and its clients may have sent more to the original since: committed here, it would be torn.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import ProducerKey, ProducerValue, encode, producers_of, replay
from log_tables.cluster.keyed_log import WRITERS_RACE
from log_tables.errors import Damaged, NotLeader
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import METADATA_ATTEMPTS_MAX
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.partition.sequencer import brief_producer_id
from log_tables.record import Record, input_batch

IDS_AT_ONCE = 10_000
"""Ids in one append."""


def fence_producers(cluster: Cluster) -> None:
    """Give each transactional id another producer: who has one of the original is told to begin again, and
    what is open of it is never committed here.

    A partition of groups that is damaged is left as it is: no gateway coordinates its ids. Raises NotLeader
    when too many processes do this at once, StoreUnavailable, OutcomeUnknown.
    """
    for partition in _partitions(cluster):
        for _ in WRITERS_RACE.attempts(cluster.clock, METADATA_ATTEMPTS_MAX):
            with suppress(NotLeader):
                _fence(cluster, partition)
                break
        else:
            raise NotLeader(f"too many processes write {partition.directory} at once; run the command again")


def _fence(cluster: Cluster, partition: Partition) -> None:
    found = _producers(partition)
    if not found:
        return
    partition.claim(cluster.url)
    found = _producers(partition)
    names = [*found]
    for start in range(0, len(names), IDS_AT_ONCE):
        some = names[start : start + IDS_AT_ONCE]
        records = [encode(ProducerKey(name), _fenced(found[name], cluster.clock)) for name in some]
        partition.append([AppendRequest(input_batch(records, cluster.clock.now_us()))])
    partition.resign()


def _fenced(value: ProducerValue, clock: Clock) -> ProducerValue:
    """Its transactions stay as they ended, and what of that has not taken effect yet does here, too. Another
    epoch would not do: a client may have the next one at the original by now.
    """
    producer_id = brief_producer_id(clock)
    return msgspec.structs.replace(
        value, producer_id=producer_id, epoch=0, replaced=None, by_end=False, sequences=()
    )


def append_to_groups(cluster: Cluster, added: Mapping[str, Sequence[Record]]) -> None:
    """Append records to the tables of groups at these directories, of a copy that nobody else uses yet.

    Raises NotLeader, StoreUnavailable, OutcomeUnknown.
    """
    for partition in _partitions(cluster):
        if records := added.get(partition.directory):
            partition.claim(cluster.url)
            partition.append([AppendRequest(input_batch(records, cluster.clock.now_us()))])
            partition.resign()


def _partitions(cluster: Cluster) -> list[Partition]:
    topic = cluster.cached_topic(CONSUMER_OFFSETS)
    return [] if topic is None else [*topic.partitions()]


def _producers(partition: Partition) -> dict[str, ProducerValue]:
    with suppress(Damaged):
        partition.refresh()
        return producers_of(dict(replay(partition)))
    return {}
