"""The removal of files that no topic has any more: those of deleted topics, and of creations that crashed."""

from msgspec.structs import replace

from log_tables.cluster.admin.topic_admin import end_deleted, remove_directory, topic_directories
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.topic import is_internal
from log_tables.errors import LakelogError
from log_tables.layout import log_directory, topic_directory
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.table.vacuum import outrun_sleepers


def sweep(cluster: Cluster) -> list[str]:
    """Remove the files that no topic has any more; returns the directories that were removed whole.

    The data of a deleted topic goes after its `file.delete.delay.ms`, once its logs have ended. The logs go
    an hour later, also by the store's clock: a process that slept relies on reading the end of a log. A
    directory that no record names, of a creation that crashed, goes when nothing in it is younger than an
    hour. An error with one directory does not keep the others; it is raised in the end.
    """
    looked = cluster.clock.boottime()
    cluster.refresh(wait=True)  # topics that were created while this process slept must be known
    cluster.metadata_log.make_durable()  # a deletion that a power cut undoes must not have removed files
    removed, failed = [], None
    for name, number in topic_directories(cluster):
        if is_internal(name):
            continue
        try:
            gone = _sweep_one(cluster, name, number, looked)
        except LakelogError as error:
            gone, failed = False, error  # the files of other topics go all the same
        if gone:
            removed.append(topic_directory(name, number))
    if failed is not None:
        raise failed
    return removed


def _sweep_one(cluster: Cluster, name: str, number: int, looked: float) -> bool:
    """Remove what may go of incarnation `number` of the topic `name`; returns whether its directory has
    gone.
    """
    record = cluster.metadata_log.topic(name)
    if record is not None and number in record.deleted:
        return _sweep_deleted(cluster, record, number)
    if record is not None and number == record.incarnation and record.live:
        return False
    return _sweep_orphan(cluster, name, number, looked)


def _sweep_deleted(cluster: Cluster, record: TopicRecord, number: int) -> bool:
    directory = topic_directory(record.name, number)
    end_deleted(cluster, record.name)  # the process that deleted it may have died before that
    age_ms = cluster.clock.now_ms() - record.deleted[number]
    delay_ms = TopicConfig(record.configs).file_delete_delay_ms
    if age_ms >= delay_ms and cluster.remote is not None:
        cluster.remote.remove(directory)
    if age_ms >= delay_ms + LOG_RETENTION_MS and _is_old(cluster, directory):
        remove_directory(cluster, directory)
        cluster.metadata_log.change_topic(record.name, lambda known: _swept(known or record, number))
        return True
    if age_ms >= delay_ms:
        files = (item.path for item in cluster.store.list(f"{directory}/"))
        cluster.store.delete_objects([path for path in files if log_directory("") not in path])
    return False


def _swept(record: TopicRecord, number: int) -> TopicRecord:
    return replace(record, deleted={n: at for n, at in record.deleted.items() if n != number})


def _sweep_orphan(cluster: Cluster, name: str, number: int, looked: float) -> bool:
    """Remove the directory of an incarnation that no record named at the time `looked`, if no process can
    still be creating it.
    """
    directory = topic_directory(name, number)
    if not _is_old(cluster, directory, empty=False):
        return False
    # A creation that sleeps in the put of its record finds it too old when it is built again.
    outrun_sleepers(cluster.metadata_log.partition.table)
    cluster.refresh(wait=True)
    record = cluster.metadata_log.topic(name)
    if record is not None and number == record.incarnation:
        return False
    if cluster.clock.boottime() - looked > CONFIRMATION_MAX_AGE_S:
        return False  # this process slept, and the creation may have ended since
    remove_directory(cluster, directory)
    return True


def _is_old(cluster: Cluster, directory: str, empty: bool = True) -> bool:
    """Whether nothing in `directory` is younger than an hour by the store's clock; `empty` if nothing is
    there.
    """
    newest = max((item.modified_ms for item in cluster.store.list(f"{directory}/")), default=None)
    return empty if newest is None else cluster.store.now_ms() - newest >= LOG_RETENTION_MS
