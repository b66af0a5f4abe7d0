"""Names that somebody who can write the root has planted there: a log leads only into its own table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent, IntentKey, pending_files
from log_tables.cluster.group_log import encode as encode_group
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.metadata_log import decode as decode_metadata
from log_tables.cluster.metadata_log import encode as encode_metadata
from log_tables.errors import CorruptLog, Damaged, ForeignCommit
from log_tables.layout import CONSUMER_OFFSETS, commit_path, segment_name
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.sql.query import query
from log_tables.store.store import Store, open_store
from log_tables.table.checkpoint import write_checkpoint
from log_tables.table.commit import encode, read_commit
from tests.kit.gateway import running_gateway
from tests.kit.partitions import another, append, values

NAME = segment_name(1, "0123abcd")

ELSEWHERE = [
    f"../1/{NAME}",
    "../../../../../../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "file:///etc/passwd",
    f"s3://another/{NAME}",
    f"%2e%2e/1/{NAME}",
    f"..%2f1%2f{NAME}",
    f"{NAME}%00",
    f"below/{NAME}",
    f"./{NAME}",
    f"{NAME}\n",
    f"{NAME}\0",
    f"..\\1\\{NAME}",
    "_delta_log/00000000000000000000.json",
    f".tmp-{NAME}",
    "..",
    "",
]
"""What the path of an add may be that is not the name of a file in its own table."""

Plant = Callable[[Store, str, str], None]


def by_a_commit(store: Store, directory: str, path: str) -> None:
    """The newest append once more, as the next version, from the next offset on, in a file `path`."""
    version = 0
    while (following := read_commit(store, directory, version + 1)) is not None:
        version, newest = version + 1, following
    (add,) = newest.adds
    assert add.stats is not None
    moved = msgspec.structs.replace(add, path=path, stats=add.stats.replace('"offset":0', '"offset":1'))
    txns = tuple(
        msgspec.structs.replace(txn, version=2) if txn.app_id == "lakelog.log" else txn for txn in newest.txns
    )
    info = msgspec.structs.replace(newest.info, batchId="planted")
    planted = type(newest)(info, txns, (moved,))
    store.put(commit_path(directory, version + 1), encode(planted))


def by_a_checkpoint(store: Store, directory: str, path: str) -> None:
    """A checkpoint of what there is, in which the newest file has the name `path`."""
    made = Partition(store, directory, SystemClock()).snapshot.checkpoint()
    adds = [*made.adds[:-1], msgspec.structs.replace(made.adds[-1], path=path)]
    write_checkpoint(store, directory, replace(made, adds=adds))


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    return Cluster.open(open_store(store_root), url="http://here")


def led(cluster: Cluster) -> Partition:
    """Partition 0 of a new topic `t`, with a record."""
    partition = create_topic(cluster, "t", 2).partition(0)
    partition.claim("http://here")
    append(partition, b"mine")
    return partition


@pytest.mark.parametrize("path", ELSEWHERE)
@pytest.mark.parametrize("plant", [by_a_commit, by_a_checkpoint])
def test_an_add_that_is_no_file_of_its_table_is_damage(cluster: Cluster, plant: Plant, path: str) -> None:
    leader = led(cluster)
    plant(cluster.store, leader.directory, path)
    with pytest.raises(Damaged):
        another(leader)
    with pytest.raises(Damaged):
        query(Cluster.open(cluster.store), "select * from t")
    assert any("is outside of its table" in problem for problem in check(cluster.store).problems)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_a_planted_commit_stops_readers_and_the_leader(cluster: Cluster, path: str) -> None:
    leader = led(cluster)
    reader = another(leader)
    by_a_commit(cluster.store, leader.directory, path)
    with pytest.raises(ForeignCommit, match="is outside of its table"):
        reader.refresh()
    with pytest.raises(ForeignCommit, match="is outside of its table"):
        append(leader, b"next")
    assert values(reader) == [b"mine"]


@pytest.mark.parametrize("path", [f"../../other/{NAME}", f"%2e%2e/{NAME}"])
def test_a_gateway_says_damaged_and_takes_no_more_for_the_partition(tmp_path: Path, path: str) -> None:
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        gateway.create_topic("t", 2)
        for partition in range(2):
            assert gateway.produce("t", 1, partition=partition).status_code == 200
        by_a_commit(open_store(tmp_path), "topics/t/partition=0", path)
        for answer in (
            gateway.client.get("/topics/t/partitions/0/records"),
            gateway.produce("t", 2, partition=0),
            gateway.produce("t", 3, partition=0),
            gateway.client.get("/topics/t/partitions/0/records"),
        ):
            assert (answer.status_code, answer.json()["error_code"]) == (500, 50002), answer.text
        assert gateway.produce("t", 4, partition=1).status_code == 200


def appended_record(cluster: Cluster, partition: Partition, record: Record) -> None:
    partition.claim("http://here")
    partition.append([AppendRequest(input_batch([record], 0))])


@pytest.mark.parametrize(
    "path", [f"topics/t/partition=0/{NAME}", "staging/../topics/t/partition=0/x", "/etc/passwd", "staging/x"]
)
def test_an_intent_that_names_no_staged_file_is_damage(cluster: Cluster, path: str) -> None:
    groups = create_topic(cluster, CONSUMER_OFFSETS, 1, internal=True).partition(0)
    intent = Intent(1, 1, (StagedFile(path, (StagedRun("t", "id", 0, 0, 1, 1),)),))
    appended_record(cluster, groups, encode_group(IntentKey("g", 1), intent))
    with pytest.raises(CorruptLog, match="not the path of a staged file"):
        pending_files([groups])


@pytest.mark.parametrize(
    ("name", "incarnation", "deleted"),
    [("../../elsewhere", 1, {}), ("..", 1, {}), ("", 1, {}), ("a/b", 1, {}), ("t", 0, {}), ("t", 2, {-1: 0})],
)
def test_a_topic_whose_tables_would_lie_elsewhere_is_damage(
    name: str, incarnation: int, deleted: dict[int, int]
) -> None:
    record = encode_metadata(TopicRecord(name, "id", incarnation, 1, {}, deleted=deleted))
    with pytest.raises(CorruptLog, match="metadata log"):
        decode_metadata(record)
