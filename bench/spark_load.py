"""Topics for the Spark cells, appended straight to the tables."""

import pyarrow as pa

from bench import load
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import binary_array, input_batch_from_columns
from log_tables.store.store import open_store

TOPIC = "bench"
SEGMENT_ROWS = 50_000
"""What a gateway under load puts into one segment."""


def fill(root: str, partitions: int, segments: int, rows: int = SEGMENT_ROWS) -> list[Partition]:
    """Make the topic and append to each partition `segments` segments of `rows` records of 100 bytes.

    All values of a segment differ. Checkpoints are written when they are due, as the gateway does it.
    """
    clock = SystemClock()
    cluster = Cluster.open(open_store(root), clock)
    topic = create_topic(cluster, TOPIC, partitions)
    values = binary_array(load.values(rows))
    leading = [cluster.claim(topic, index) for index in range(partitions)]
    for _ in range(segments):
        for partition in leading:
            append(partition, values, clock)
    return leading


def append(partition: Partition, values: pa.Array, clock: SystemClock) -> None:
    """One segment of these values."""
    partition.append([AppendRequest(input_batch_from_columns(values, now_us=clock.now_us()))])
    if partition.table.checkpoint_due():
        partition.checkpoint()
