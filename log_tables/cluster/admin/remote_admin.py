"""The remote root of a cluster: it is set here, and what topics ask of it is checked and made."""

import os
from contextlib import suppress

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.root_location import RootLocation, check_finished, locate, note_location
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import COMPACT
from log_tables.errors import CorruptLog, InvalidArgument, InvalidConfig, StoreUnavailable
from log_tables.layout import PROPERTY_REMOTE_ROOT, REMOTE_OWNER, partition_directory
from log_tables.partition.remote import RemoteRoot, check_reaches
from log_tables.store.store import open_store, overlap


def set_remote_root(cluster: Cluster, url: str | os.PathLike[str]) -> None:
    """Set the remote root: a URL, or a directory, which is created and kept as its absolute path.

    A new remote root must hold all records that were moved to the old one: stop the jobs and copy them
    first. Raises InvalidArgument when a table is missing there, and for a root that cannot be used, such
    as one inside of this root; StoreUnavailable.
    """
    with suppress(InvalidArgument):
        if open_store(url, cluster.store.options, create=False).url == cluster.remote_root:
            return  # without reading it: a gateway starts while it is away, and serves what is here
    store = open_store(url, cluster.store.options, clock=cluster.clock)
    if overlap(store.url, cluster.store.url):  # a sweep of one would remove tables of the other
        raise InvalidArgument(
            "the remote root is the root itself, or one of them lies inside the other; name another place"
        )
    cluster.refresh(wait=True)
    if locate(cluster.store) is RootLocation.UNKNOWN:
        check_finished(cluster.store)
        note_location(cluster.store)  # now, or a copy of this root could not be told from it
    remote = RemoteRoot(store.url, cluster.cluster_id, cluster.clock, lambda: store, cluster.remote_owner)
    remote.mark()
    _check_owned(cluster, remote)
    if cluster.remote_root not in (None, store.url):
        _check_moved(cluster, remote)
    cluster.metadata_log.partition.set_properties({PROPERTY_REMOTE_ROOT: store.url})


def _check_owned(cluster: Cluster, remote: RemoteRoot) -> None:
    """Raise InvalidArgument when `remote` is another root's, of the same cluster id."""
    try:
        remote.check_owned()
    except CorruptLog:
        raise InvalidArgument(
            f"{remote.url} belongs to another root of cluster {cluster.cluster_id}; name another place, or, "
            f"if that root no longer exists, delete the object {REMOTE_OWNER} there"
        ) from None


def _check_moved(cluster: Cluster, remote: RemoteRoot) -> None:
    """Raise InvalidArgument when `remote` lacks a table to which records were moved."""
    for topic in cluster.topics(include_internal=True):
        for partition in topic.partitions():
            here = partition.refresh(wait=True)
            if here.tiered <= here.log_start:
                continue
            try:
                check_reaches(remote.table(partition.directory).snapshot, here, partition.directory)
            except (StoreUnavailable, CorruptLog) as error:
                raise InvalidArgument(
                    f"{remote.url} does not hold the records that were moved: {error.message}; copy the "
                    f"tables of {cluster.remote_root} there first"
                ) from None


def check_remote_root(cluster: Cluster, config: TopicConfig) -> None:
    """Raise InvalidConfig when segments are to move to a remote root and none is set."""
    if config.remote_storage and cluster.remote_root is None:
        cluster.metadata_log.partition.refresh()
        if cluster.remote_root is None:
            raise InvalidConfig(
                "remote.storage.enable='true' needs a remote root, and none is set; set one with "
                "`lakelog maintain --remote-root` or the setting remote_root"
            )


def check_untiered(topic: Topic) -> None:
    """Raise InvalidConfig when `topic`, to be compacted by key, has records in the remote root."""
    for partition in topic.partitions():
        here = partition.refresh()
        if here.tiered > here.log_start:
            raise InvalidConfig(
                f"cleanup.policy={COMPACT!r} needs the whole log in one root, and offsets up to "
                f"{here.tiered - 1} of {partition.directory} are in the remote root; delete these "
                "records, or wait until retention has deleted them"
            )


def make_remote_tables(cluster: Cluster, directory: str, partitions: range, config: TopicConfig) -> None:
    """Create the tables in the remote root, and the one over them, before any segment moves there: SQL views
    and other programs name them.
    """
    remote = cluster.remote
    if config.remote_storage and remote is not None:
        for partition in partitions:
            remote.make_table(partition_directory(directory, partition)).widen(config.columns)
        remote.make_topic_table(directory)
