"""Adopting a root that was copied or moved: it gets its own cluster id, and no gateways on its list."""

from contextlib import suppress

from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.cluster.admin.producer_fence import fence_producers
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import check_finished, note_location
from log_tables.cluster.standby import check_served
from log_tables.cluster.topic_fold import settle
from log_tables.counts import counted
from log_tables.errors import Conflict, CorruptLog, InvalidArgument, TopicDeleted
from log_tables.layout import PROPERTY_REMOTE_OWNER, PROPERTY_REMOTE_ROOT
from log_tables.root.inspection import inspect
from log_tables.root.listed_brokers import find_living, strike_off
from log_tables.store.store import Store
from log_tables.table.commit import Commit
from log_tables.table.delta_log import commit_info, new_table_id
from log_tables.table.snapshot import Snapshot


def adopt(store: Store, clock: Clock, wait_s: float, keep_id: bool = False, force: bool = False) -> str:
    """Make the root of `store` independent of the original; returns its cluster id, a new one unless
    `keep_id`.

    Gateways on its list have `wait_s` seconds to show that they live. Raises Conflict when one does, and
    CorruptLog when the root is not whole; neither if `force`. Raises InvalidArgument when a new id would part
    it from records in a remote root. With `keep_id` only this root may change the remote root from then on;
    raises StoreUnavailable while that is missing.
    """
    check_finished(store)
    check_served(store)
    cluster = Cluster.open(store, clock, create=False)
    if not keep_id:
        check_untiered(cluster)
    if not force:
        _check_whole(cluster)
        _check_silent(cluster, wait_s)
    cluster.begin_log_epoch()
    return become_own(cluster, keep_id)


def become_own(cluster: Cluster, keep_id: bool) -> str:
    """Give a root a cluster id of its own, unless `keep_id`, and take what is another's off its lists;
    returns the id.
    """
    if keep_id:
        _take_over(cluster)
    else:
        _rename(cluster)
    for topic in cluster.topics():
        settle(cluster, topic, new_id=not keep_id)  # a table of its own, like its cluster id
    fence_producers(cluster)
    strike_off(cluster)
    cluster.metadata_log.partition.resign()
    note_location(cluster.store)
    return cluster.cluster_id


def check_untiered(cluster: Cluster) -> None:
    """Raise InvalidArgument when a new id would part the root from records in a remote one."""
    if cluster.remote_root is None:
        return
    for topic in cluster.topics(include_internal=True):
        for partition in topic.partitions():
            with suppress(TopicDeleted):  # it came back, and its log has not gone on yet
                partition.refresh(wait=True)
            here = partition.snapshot
            if here.tiered > here.log_start:
                raise InvalidArgument(
                    f"records of {partition.directory} are in the remote root {cluster.remote_root}, which "
                    "belongs to the old cluster id; copy the original with `lakelog root copy`, which copies "
                    "them too, or use --keep-id if the original no longer exists"
                )


def _check_whole(cluster: Cluster) -> None:
    problems = inspect(cluster).problems
    if problems:
        raise CorruptLog(
            f"this root is not whole: {problems[0]} ({counted(len(problems), 'problem')}, which "
            "`lakelog fsck` lists); copy it again with `lakelog root copy`, or use --force to adopt it as it "
            "is"
        )


def _check_silent(cluster: Cluster, wait_s: float) -> None:
    """Raise Conflict when a gateway on the list gives a sign of life."""
    living = find_living(cluster, wait_s)
    if living is not None:
        raise Conflict(f"broker {living.id} at {living.url} runs on this root; stop it first, or use --force")


def _take_over(cluster: Cluster) -> None:
    """Let this root alone change the remote root, of all roots with its cluster id.

    It is recorded here first: after a crash in between the remote root refuses this root too, until it is
    adopted again.
    """
    if cluster.remote is not None:
        cluster.remote.check_there()
        owner = cluster.clock.unique_id()
        cluster.metadata_log.partition.set_properties({PROPERTY_REMOTE_OWNER: owner})
        cluster.remote.take_over()


def _rename(cluster: Cluster) -> None:
    info, made = commit_info(cluster.clock, "SET TBLPROPERTIES"), new_table_id(cluster.clock)

    def build(snapshot: Snapshot) -> Commit:
        configuration = {
            name: value
            for name, value in snapshot.metadata.configuration.items()
            if name not in (PROPERTY_REMOTE_ROOT, PROPERTY_REMOTE_OWNER)
        }
        return Commit(info, metadata=replace(snapshot.metadata, id=made, configuration=configuration))

    cluster.metadata_log.partition.table.transact(build)
