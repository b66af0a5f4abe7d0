"""The slices that a filter leaves hold every row for which it is true, whatever it is."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_admin import create_topic
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.sql.file_slices import SCAN_SCHEMA, file_slices, spread
from log_tables.sql.scan import read_slices
from log_tables.sql.topic_files import TopicFiles, topic_files
from log_tables.store.store import open_store
from tests.kit.partitions import thin_out

COLUMNS = ("partition", "offset", "timestamp", "key")
TIME = SCAN_SCHEMA.field("timestamp").type


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TopicFiles:
    """Two partitions of small files and a large one, with a log start inside of a file and a gap."""
    cluster = Cluster.open(open_store(Path(tmp_path_factory.mktemp("slices"))))
    for number, partition in enumerate(create_topic(cluster, "t", 2).partitions()):
        partition.claim("")
        for size in (3, 1, 5, 300, 4):
            first = partition.high_watermark
            rows = [
                Record(b"x" * 500, key=b"%d" % (row % 3), timestamp_us=(first + row) * 700 + number)
                for row in range(size)
            ]
            partition.append([AppendRequest(input_batch(rows, 0))])
        thin_out(partition, partition.snapshot.segments[2:3], keep=lambda offset: offset % 2 == 1)
        partition.refresh()
        partition.truncate(2)
    return topic_files(cluster, "t")


def comparison(column: str, value: pa.Scalar, name: str) -> pc.Expression:
    made: pc.Expression = getattr(pc.field(column), name)(value)
    return made


scalars = {
    "partition": st.integers(-1, 3).map(lambda value: pa.scalar(value, pa.int32())),
    "offset": st.integers(-1, 320).map(lambda value: pa.scalar(value, pa.int64())),
    "timestamp": st.integers(-1, 225_000).map(lambda value: pa.scalar(value, TIME)),
    "key": st.sampled_from([b"0", b"1", b"9"]).map(lambda value: pa.scalar(value, pa.binary())),
}
leaves = st.sampled_from(COLUMNS).flatmap(
    lambda column: st.builds(
        comparison,
        st.just(column),
        scalars[column],
        st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]),
    )
) | st.lists(st.integers(0, 320), min_size=1, max_size=5).map(lambda some: pc.field("offset").isin(some))
filters = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda one, other: one & other, inner, inner)
        | st.builds(lambda one, other: one | other, inner, inner)
        | inner.map(lambda one: ~one)
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=filters)
def test_no_row_of_a_filter_is_left_out(files: TopicFiles, where: pc.Expression) -> None:
    whole = pa.Table.from_batches(read_slices("t", file_slices(files, None), COLUMNS, None))
    slices = file_slices(files, where)
    parts = [part for parts in spread(slices) for part in parts]
    assert parts == slices
    found = pa.Table.from_batches(read_slices("t", slices, COLUMNS, where), whole.schema)
    assert found.equals(whole.filter(where))


def test_a_large_file_is_narrowed_to_the_offsets_of_a_filter(files: TopicFiles) -> None:
    where = (pc.field("offset") == 100) & (pc.field("partition") == pa.scalar(1, pa.int32()))
    (found,) = file_slices(files, where)
    assert found.start <= 100 < found.end <= found.start + 10
    assert found.files.partition == 1
