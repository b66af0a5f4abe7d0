"""Making a root that was copied or moved one of its own: another cluster id, and no gateways on its list."""

from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.cluster import Cluster
from log_tables.commit import Commit
from log_tables.errors import Conflict, CorruptLog, InvalidArgument, ObjectMissing
from log_tables.home import remember
from log_tables.layout import PROPERTY_REMOTE_ROOT, broker_path
from log_tables.limits import ADOPTION_LOOKS
from log_tables.metadata_log import BrokerRecord
from log_tables.snapshot import Snapshot
from log_tables.store import Store
from log_tables.table import commit_info, new_table_id
from log_tables.whole import inspect

_VISITOR = "lakelog-root-adopt"


def adopt(store: Store, clock: Clock, wait_s: float, keep_id: bool = False, force: bool = False) -> str:
    """Make the root of `store` one of its own; returns its cluster id, a new one unless `keep_id`.

    Gateways on its list are given `wait_s` seconds to show that they live. Raises Conflict when one does,
    CorruptLog when the root is not whole, neither if `force`; InvalidArgument when a new id would part it
    from records in a remote root.
    """
    cluster = Cluster.open(store, clock, create=False)
    if not keep_id:
        _check_untiered(cluster)
    if not force:
        _check_whole(cluster)
        _check_silent(cluster, wait_s)
    for record in [*cluster.metadata_log.brokers.values()]:
        cluster.metadata_log.remove_broker(record)
        store.delete(broker_path(record.id))
    if not keep_id:
        _rename(cluster)
    cluster.metadata_log.partition.resign()
    remember(store)
    return cluster.cluster_id


def _check_untiered(cluster: Cluster) -> None:
    if cluster.remote_root is None:
        return
    for topic in cluster.topics(include_internal=True):
        for partition in topic.partitions():
            here = partition.refresh(wait=True)
            if here.tiered > here.log_start:
                raise InvalidArgument(
                    f"records of {partition.directory} are in the remote root {cluster.remote_root}, which "
                    "is that of one cluster id; copy the original with `lakelog root copy`, which takes them "
                    "along, or use --keep-id if the original is no more"
                )


def _check_whole(cluster: Cluster) -> None:
    problems = inspect(cluster).problems
    if problems:
        raise CorruptLog(
            f"this root is not whole: {problems[0]} ({len(problems)} in all, `lakelog fsck` tells them); "
            "copy it again with `lakelog root copy`, or use --force to take what is there"
        )


def _check_silent(cluster: Cluster, wait_s: float) -> None:
    """Raise Conflict when a gateway on the list gives a sign of life.

    One that is alone gives none, so this comes to the list too, as one that is leaving.
    """
    log = cluster.metadata_log
    listed = [*log.brokers.values()]
    if not listed:
        return
    visitor = log.register_broker(_VISITOR, leaving=True)
    try:
        before = {record.id: _sign(cluster, record) for record in listed}
        for _ in range(ADOPTION_LOOKS):
            cluster.clock.pause(wait_s / ADOPTION_LOOKS)
            for record in listed:
                if _sign(cluster, record) not in ("", before[record.id]):
                    raise Conflict(
                        f"broker {record.id} at {record.url} lives on this root; stop it first, or use "
                        "--force"
                    )
    finally:
        log.remove_broker(visitor)


def _sign(cluster: Cluster, record: BrokerRecord) -> str:
    try:
        return cluster.store.get(broker_path(record.id)).decode(errors="replace")
    except ObjectMissing:
        return ""


def _rename(cluster: Cluster) -> None:
    info, made = commit_info(cluster.clock, "SET TBLPROPERTIES"), new_table_id(cluster.clock)

    def build(snapshot: Snapshot) -> Commit:
        configuration = {
            name: value
            for name, value in snapshot.metadata.configuration.items()
            if name != PROPERTY_REMOTE_ROOT
        }
        return Commit(info, metadata=replace(snapshot.metadata, id=made, configuration=configuration))

    cluster.metadata_log.partition.table.transact(build)
