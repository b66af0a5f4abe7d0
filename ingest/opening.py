"""The root and the cluster that the settings name, opened by every gateway, job and command in one way, and
the room that its disk is to have.
"""

from ingest.registry_settings import registry_accesses
from ingest.settings import Settings
from log_tables.clock import Clock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.root.opening import open_cluster, open_root
from log_tables.store.disk_room import DiskBounds


def cluster_of(
    settings: Settings, clock: Clock | None = None, url: str = "", create: bool = False
) -> Cluster:
    """The cluster at the root that the settings name. With `create` an empty root becomes one, unless
    must_exist or cluster_id is set. `url` is that of this process, for its claims.

    Raises RootMissing for a root that is not there, StoreUnavailable where must_exist or cluster_id says
    that it has to be, InvalidConfig for another cluster than cluster_id names, CorruptLog.
    """
    clock, expected = clock or SystemClock(), (settings.must_exist, settings.cluster_id)
    store = open_root(
        settings.data, settings.store_options, clock, settings.durability, *expected, create=create
    )
    registries = registry_accesses(settings.schema_registries)
    return open_cluster(store, clock, url, *expected, registries, create=create)


def disk_bounds(settings: Settings) -> DiskBounds:
    """The room that the settings say a disk is to have."""
    return DiskBounds(settings.disk_reserve_bytes, settings.disk_free_min_bytes)


def pinned(settings: Settings, cluster: Cluster) -> Settings:
    """Settings for another process, which is to open this very cluster, and make none."""
    return settings.model_copy(update={"must_exist": True, "cluster_id": cluster.cluster_id})
