"""The versions of a topic's tables, as delta-rs reads them."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as arrow_dataset
from deltalake import DeltaTable

from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store


def values_of_all_versions(root: Path, name: str) -> Iterator[bytes]:
    """The values in each version of the tables of a topic, each file once."""
    topic = Cluster.open(open_store(root)).topic(name)
    for number in range(topic.partition_count):
        path = str(root / topic.partition(number).directory)
        newest = DeltaTable(path).version()
        seen: set[str] = set()
        for version in range(newest + 1):
            files = {*DeltaTable(path, version=version).file_uris()} - seen
            seen |= files
            if files:
                table = arrow_dataset.dataset([*files], format="parquet").to_table(columns=["value"])
                yield from table.column("value").to_pylist()
