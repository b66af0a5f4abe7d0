"""The removal of files that no topic has any more: those of deleted topics, and of creations that crashed."""

from msgspec.structs import replace

from log_tables.cluster.admin.topic_admin import end_deleted, remove_directory, topic_directories
from log_tables.cluster.admin.undelete import give_up, kept_until_ms, remove_data, without
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.topic import is_internal
from log_tables.errors import LakelogError
from log_tables.layout import incarnation_of
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.table.vacuum import outrun_sleepers


def sweep(cluster: Cluster) -> list[str]:
    """Remove the files that no topic has any more; returns the directories that were removed whole.

    The data of a deleted topic goes after its `topic.delete.delay.ms` and its `file.delete.delay.ms`, when a
    record says that it cannot be brought back any more, and its logs have ended. The logs go an hour later,
    also by the store's clock: a process that slept relies on reading the end of a log. A directory that no
    record names, of a creation that crashed, goes when nothing in it is younger than an hour. An error with
    one directory does not keep the others; it is raised in the end.
    """
    looked = cluster.clock.boottime()
    cluster.refresh(wait=True)  # topics that were created while this process slept must be known
    cluster.metadata_log.make_durable()  # a deletion that a power cut undoes must not have removed files
    removed, failed = [], None
    for directory in topic_directories(cluster):
        named = incarnation_of(directory)
        if named is None or is_internal(named[0]):
            continue
        try:
            gone = _sweep_one(cluster, directory, looked)
        except LakelogError as error:
            gone, failed = False, error  # the files of other topics go all the same
        if gone:
            removed.append(directory)
    failed = _finish_undeletes(cluster) or failed
    if failed is not None:
        raise failed
    return removed


def _finish_undeletes(cluster: Cluster) -> LakelogError | None:
    """Let the tables of topics go on that came back: the process that undeleted one may have died before
    that. Each is looked at once. Returns what went wrong.
    """
    failed = None
    for topic in cluster.topics():
        at = topic.topic_id, topic.revived
        if topic.revived and at not in cluster.revived:
            try:
                cluster.revive(topic)
                cluster.revived.add(at)
            except LakelogError as error:
                failed = error
    return failed


def _sweep_one(cluster: Cluster, directory: str, looked: float) -> bool:
    """Remove what may go of `directory`; returns whether it has gone."""
    owner = cluster.metadata_log.owner_of(directory)
    if owner is not None:
        record, number = owner
        if number in record.deleted:
            return _sweep_deleted(cluster, record, number)
        if number == record.incarnation and record.live:
            return False
    return _sweep_orphan(cluster, directory, looked)


def _sweep_deleted(cluster: Cluster, record: TopicRecord, number: int) -> bool:
    directory = record.directory_of(number)
    end_deleted(cluster, record.name)  # the process that deleted it may have died before that
    now_ms = cluster.clock.now_ms()

    def is_due(known: TopicRecord) -> bool:
        return now_ms >= kept_until_ms(known, number)

    if number in record.kept:
        # Also by the store's clock: that of this machine, or of the one that deleted it, may be wrong.
        stays_ms = kept_until_ms(record, number) - record.deleted[number]
        due = is_due(record) and _is_old(cluster, directory, stays_ms)
        if not due or not give_up(cluster, record, number, is_due):
            return False
    age_ms = now_ms - record.deleted[number]
    delay_ms = TopicConfig(record.configs).file_delete_delay_ms
    if age_ms < delay_ms:
        return False
    if age_ms >= delay_ms + LOG_RETENTION_MS and _is_old(cluster, directory, LOG_RETENTION_MS):
        if cluster.remote is not None:
            cluster.remote.remove(directory)
        remove_directory(cluster, directory)
        cluster.metadata_log.change_topic(record.name, lambda known: _swept(known or record, number))
        return True
    remove_data(cluster, directory)
    return False


def _swept(record: TopicRecord, number: int) -> TopicRecord:
    return replace(record, deleted=without(record.deleted, number), homes=without(record.homes, number))


def _sweep_orphan(cluster: Cluster, directory: str, looked: float) -> bool:
    """Remove the directory of an incarnation that no record named at the time `looked`, if no process can
    still be creating it.
    """
    if not _is_old(cluster, directory, LOG_RETENTION_MS, empty=False):
        return False
    # A creation that sleeps in the put of its record finds it too old when it is built again.
    outrun_sleepers(cluster.metadata_log.partition.table)
    cluster.refresh(wait=True)
    owner = cluster.metadata_log.owner_of(directory)
    if owner is not None and owner[1] in (owner[0].incarnation, *owner[0].deleted):
        return False
    if cluster.clock.boottime() - looked > CONFIRMATION_MAX_AGE_S:
        return False  # this process slept, and the creation may have ended since
    remove_directory(cluster, directory)
    return True


def _is_old(cluster: Cluster, directory: str, age_ms: int, empty: bool = True) -> bool:
    """Whether nothing in `directory` is younger than `age_ms` by the store's clock; `empty` if nothing is
    there.
    """
    newest = max((item.modified_ms for item in cluster.store.list(f"{directory}/")), default=None)
    return empty if newest is None else cluster.store.now_ms() - newest >= age_ms
