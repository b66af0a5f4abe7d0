"""A root of another format is refused, and stays as it is."""

from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import UnsupportedTable
from log_tables.layout import METADATA_DIRECTORY, PROPERTY_FORMAT, old_partition_directory
from log_tables.root.fsck import check
from log_tables.store.store import Store
from log_tables.table.table import create_table

OLD = old_partition_directory("topics/__cluster_metadata", 0)


@pytest.mark.parametrize(
    ("directory", "properties", "said"),
    [
        (OLD, {}, "this root has the format 1, and this lakelog reads and writes format 2"),
        (METADATA_DIRECTORY, {PROPERTY_FORMAT: "3"}, "this root has the format 3"),
        (METADATA_DIRECTORY, {}, "this root has the format unknown"),
    ],
)
@pytest.mark.parametrize("opened", [Cluster.open, check])
def test_a_root_of_another_format_is_refused(
    store: Store,
    clock: ManualClock,
    directory: str,
    properties: dict[str, str],
    said: str,
    opened: Callable[[Store], object],
) -> None:
    create_table(store, directory, clock, properties)
    before = [*store.list("")]
    with pytest.raises(UnsupportedTable, match=said):
        opened(store)
    assert [*store.list("")] == before
