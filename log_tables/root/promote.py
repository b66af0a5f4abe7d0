"""The promotion of a standby: from then on it is a root of its own, and follows nobody.

Each table that records are appended to is claimed, that of credentials, too: a process that still replicates
meets a commit that its original has not. The tables over topics rest on these, and need no claim. A deletion
or an undelete of a topic that has come over only in part is finished first: its record says what holds.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.cluster.admin.topic_admin import end_deleted
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import open_credentials
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.standby import check_level, delete_mark, note_promoted, put_mark, read_mark
from log_tables.cluster.topic import Topic
from log_tables.counts import counted
from log_tables.errors import CorruptLog, Damaged, InvalidArgument, TopicDeleted
from log_tables.limits import TABLES_AT_ONCE
from log_tables.partition.partition import Partition
from log_tables.root.adopt import become_own, check_untiered
from log_tables.root.inspection import inspect
from log_tables.store.store import Store


@dataclass(frozen=True, slots=True)
class Promoted:
    """A standby that was promoted: its cluster id, and what it followed before."""

    cluster_id: str
    source: str
    topics: int
    records: int


def promote(store: Store, clock: Clock, keep_id: bool = False, force: bool = False) -> Promoted:
    """Make the standby at `store` a root of its own, with a new cluster id unless `keep_id`.

    It may be called again after it was interrupted. Raises InvalidArgument for a root that is no standby, and
    when a new id would part it from records in a remote root; CorruptLog for one that is not of one moment or
    not whole, unless `force`; and what the store raises.
    """
    mark = read_mark(store)
    if mark is None:
        raise InvalidArgument(f"{store.url} is no standby; name a root that `lakelog replicate` writes to")
    if not force:
        check_level(store)
    cluster = Cluster.open(store, clock, create=False)
    if not keep_id:
        check_untiered(cluster)
    note_promoted(store, mark.cluster_id)
    put_mark(store, replace(mark, is_promoted=True))
    # The metadata log first: no topic comes or goes from then on, and the other claims note the log epoch.
    cluster.begin_log_epoch()
    cluster.refresh(wait=True)
    partitions = [each for topic in cluster.topics(include_internal=True) for each in _partitions(topic)]
    credentials = open_credentials(store, clock, cluster.url)
    others = [] if credentials is None else [credentials.partition]
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="promote") as pool:
        for _ in pool.map(lambda record: _finish(record, cluster), cluster.metadata_log.topics()):
            pass
        for _ in pool.map(lambda partition: _claim(partition, cluster), [*partitions, *others]):
            pass
    if not keep_id:
        check_untiered(cluster)  # some may have been moved since
    problems = [] if force else inspect(cluster).problems
    if problems:
        raise CorruptLog(
            f"this standby is not whole: {problems[0]} ({counted(len(problems), 'problem')}, which "
            "`lakelog fsck` lists); use --force to promote it as it is"
        )
    cluster_id = become_own(cluster, keep_id)
    delete_mark(store)
    ends = sum(each.high_watermark - each.log_start for each in partitions)
    return Promoted(cluster_id, mark.source, len(cluster.topics()), ends)


def _partitions(topic: Topic) -> list[Partition]:
    with suppress(Damaged):
        return topic.partitions()
    return []


def _finish(record: TopicRecord, cluster: Cluster) -> None:
    """End the logs of a deleted topic, and let those of one that was brought back go on."""
    topic = cluster.cached_topic(record.name)
    if topic is None:
        end_deleted(cluster, record.name)
    elif topic.revived:
        cluster.revive(topic)


def _claim(partition: Partition, cluster: Cluster) -> None:
    """Put a commit that no other root has, so that nothing is replicated to the table any more."""
    with suppress(Damaged, TopicDeleted):  # it takes no commits, from nobody
        partition.claim(cluster.url)
        partition.resign()
