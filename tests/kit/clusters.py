"""A root as other processes open it, and what it holds."""

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.layout import partition_directory
from log_tables.store.store import Store
from log_tables.table.table import Table
from tests.kit.partitions import values


def another(cluster: Cluster, store: Store | None = None) -> Cluster:
    """The cluster of this root, opened anew as in another process."""
    return Cluster.open(store or cluster.store, cluster.clock, "http://second")


def names(cluster: Cluster) -> list[str]:
    cluster.refresh()
    return [topic.name for topic in cluster.topics()]


def directories(store: Store) -> set[str]:
    """The directories of topics that hold anything, internal ones left out."""
    found = {"/".join(item.path.split("/")[:2]) for item in store.list("topics/")}
    return {directory for directory in found if not directory.startswith("topics/__")}


def looked(topic: Topic) -> list[bytes | None]:
    """The values that a fetch from the first partition of `topic` returns."""
    partition = topic.partition(0)
    partition.refresh()
    return values(partition)


def ended(cluster: Cluster, directory: str, count: int) -> list[bool]:
    tables = (
        Table(cluster.store, partition_directory(directory, index), cluster.clock) for index in range(count)
    )
    return [table.snapshot.deleted for table in tables]
