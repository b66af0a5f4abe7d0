"""The table over the remote tables of a topic: folded through stores that fail, kept short, begun again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import begin_again, fold_remote
from log_tables.errors import CorruptLog, StoreUnavailable
from log_tables.layout import REMOTE_MARK, checkpoint_version, commit_version, log_directory
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, TOPIC_LOG_RETENTION_MS
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import remove_expired
from log_tables.root.fold_replay import check_remote_fold
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.table.commit import VACUUM, Commit
from log_tables.table.delta_log import commit_info
from log_tables.testing import (
    WRITES,
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)
from log_tables.topic_table.topic_table import TopicTable, create_topic_table
from tests.kit.joined import MOVING, tables_of
from tests.kit.partitions import TABLE, append_each
from tests.kit.tiers import CLUSTER, move, numbered_partition, tiered_cluster

TOPIC = "topics/t"
LOG = log_directory(TOPIC)
COMMITS = 3


class Scene:
    """A partition in memory with six segments, and a remote root in memory, on its own clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.away: Store = ClockedStore(open_store("memory://"), clock)
        self.away.put(REMOTE_MARK, CLUSTER.encode())
        self.partition = numbered_partition(open_store("memory://"), clock)

    def root(self, store: Store | None = None) -> RemoteRoot:
        """The remote root as a process opens it, through `store` if one is given."""
        return RemoteRoot("memory://", CLUSTER, self.clock, lambda: store or self.away)

    def move(self, count: int) -> None:
        move(self.partition.table, self.root(), count)

    def fold(self, store: Store | None = None) -> None:
        root = self.root(store)
        fold_remote(root, TOPIC, {0: root.table(TABLE).snapshot})

    def table(self) -> TopicTable:
        return TopicTable(self.away, TOPIC, self.clock)

    def check_level(self) -> None:
        """The table names the very files of the remote table, now and at each version that it notes."""
        self.fold()
        assert self.table().snapshot.of(0) == self.root().table(TABLE).snapshot.segments
        assert [*check_remote_fold(self.away, TOPIC, 1, CLUSTER)] == []


@pytest.fixture
def scene(clock: ManualClock) -> Scene:
    """A fold has to rewrite, to remove and to append: three commits."""
    made = Scene(clock)
    made.move(3)
    made.fold()
    remote = made.root().table(TABLE)
    merged = remote.snapshot.segments[1:]
    assert rewrite.commit_merge(remote, merged, rewrite.merge(made.away, TABLE, merged, "zstd", clock))
    remove_expired(remote, 2)
    made.move(2)
    return made


def test_a_fold_of_three_kinds_is_three_commits(scene: Scene) -> None:
    before = scene.table().snapshot.version
    scene.check_level()
    assert scene.table().snapshot.version == before + COMMITS


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_a_process_that_dies_at_a_write_leaves_the_rest_to_the_next(
    scene: Scene, nth: int, failure: Failure
) -> None:
    with pytest.raises(Crash):
        scene.fold(FaultyStore(scene.away, [Fault(nth, failure, WRITES, LOG)]))
    scene.check_level()


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
@pytest.mark.parametrize("failure", [unavailable, answer_lost, repeated, nothing_landed])
def test_a_write_whose_answer_says_little_is_looked_up(scene: Scene, nth: int, failure: Failure) -> None:
    scene.fold(FaultyStore(scene.away, [Fault(nth, failure, WRITES, LOG)]))
    assert scene.table().snapshot.version == 1 + COMMITS
    scene.check_level()


@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
def test_a_full_store_ends_the_fold_and_harms_nothing(scene: Scene, nth: int) -> None:
    with pytest.raises(StoreUnavailable):
        scene.fold(FaultyStore(scene.away, [Fault(nth, refused, WRITES, LOG)]))
    scene.check_level()


@pytest.mark.parametrize("failure", [crash_before, crash_after, unavailable, answer_lost, repeated])
def test_a_table_is_made_though_the_first_attempt_failed(clock: ManualClock, failure: Failure) -> None:
    scene = Scene(clock)
    scene.move(1)
    with dying():
        scene.fold(FaultyStore(scene.away, [Fault(1, failure, WRITES, LOG)]))
    scene.check_level()
    assert scene.table().snapshot.cluster == CLUSTER


@contextmanager
def dying() -> Iterator[None]:
    try:
        yield
    except Crash:
        pass


def test_an_older_snapshot_changes_nothing(scene: Scene) -> None:
    """The old snapshot is that of a job that slept while another one moved more."""
    old = scene.root().table(TABLE).snapshot
    scene.move(1)
    scene.fold()
    version = scene.table().snapshot.version
    fold_remote(scene.root(), TOPIC, {0: old})
    assert scene.table().snapshot.version == version
    scene.check_level()


def test_a_process_that_keeps_the_table_open_goes_on_where_another_began_it_again(scene: Scene) -> None:
    root = scene.root()

    def fold() -> None:
        fold_remote(root, TOPIC, {0: root.table(TABLE).snapshot})

    fold()
    scene.root().refold(TOPIC)
    fold()
    scene.check_level()
    for item in [*scene.away.list(f"{LOG}/")]:
        scene.away.delete(item.path)
    fold()
    scene.check_level()


def test_a_remote_table_that_was_restored_is_named(scene: Scene) -> None:
    scene.fold()
    ahead = scene.root().table(TABLE).snapshot.version
    scene.away.delete(f"{log_directory(TABLE)}/{ahead:020}.json")
    with pytest.raises(CorruptLog, match="the table over topics/t in the remote root has version") as error:
        scene.fold()
    assert "lakelog root refold" in error.value.message
    scene.root().refold(TOPIC)
    scene.check_level()


def test_a_table_of_another_cluster_is_left_alone(clock: ManualClock) -> None:
    scene = Scene(clock)
    scene.move(1)
    create_topic_table(scene.away, TOPIC, clock, {"lakelog.cluster": "another"})
    with pytest.raises(CorruptLog, match="is of cluster another, not of cluster a-cluster"):
        scene.fold()
    assert scene.table().snapshot.version == 0
    (problem,) = check_remote_fold(scene.away, TOPIC, 1, CLUSTER)
    assert "it is of cluster another, not of a-cluster" in problem


def test_a_record_that_the_table_lacks_is_found(scene: Scene) -> None:
    scene.fold()
    table = scene.table()
    (_, last) = table.snapshot.of(0)[-2:]
    path = f"partition=0/{last.path}"
    gone = replace(last.remove(scene.clock.now_ms(), data_change=True), path=path)
    gone = replace(gone, partitionValues={"partition": "0"})
    noted = [txn for txn in table.snapshot.txns.values() if txn.app_id == "lakelog.fold.0.version"]
    table.transact(lambda _: Commit(commit_info(scene.clock, "DELETE"), tuple(noted), removes=(gone,)))
    problems = [*check_remote_fold(scene.away, TOPIC, 1, CLUSTER)]
    assert any(f"has other files than {TABLE} has at its version" in problem for problem in problems)


def versions(scene: Scene) -> tuple[list[int], list[int]]:
    """The checkpoints and the commits that the log still has."""
    paths = [item.path for item in scene.away.list(f"{LOG}/")]
    checkpoints = [version for version in map(checkpoint_version, paths) if version is not None]
    return checkpoints, [version for version in map(commit_version, paths) if version is not None]


def test_who_folds_keeps_the_log_short(scene: Scene, clock: ManualClock) -> None:
    table = scene.table()
    for _ in range(CHECKPOINT_INTERVAL_COMMITS):
        table.transact(lambda _: Commit(commit_info(clock, VACUUM)))
    scene.check_level()
    newest = scene.table().snapshot.version
    assert versions(scene) == ([newest], [*range(newest + 1)])
    clock.advance(TOPIC_LOG_RETENTION_MS + 1)
    table = scene.table()
    for _ in range(CHECKPOINT_INTERVAL_COMMITS):
        table.transact(lambda _: Commit(commit_info(clock, VACUUM)))
    scene.check_level()
    checkpoints, commits = versions(scene)
    assert checkpoints[-1] == newest + CHECKPOINT_INTERVAL_COMMITS
    assert commits[0] > 0
    scene.check_level()


def test_both_tables_are_begun_again_under_new_ids(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    topic = create_topic(cluster, "t", 2, MOVING)
    append_each(cluster.claim(topic, 0), [b"0", b"1", b"2"])
    assert cluster.remote is not None
    move(topic.partition(0).table, cluster.remote, 2)
    before = ids(cluster)
    begin_again(cluster, topic)
    assert not ids(cluster) & before
    _, remote = tables_of(cluster, topic)
    assert remote.of(0) == cluster.remote.table(TABLE).snapshot.segments
    assert remote.cluster == cluster.cluster_id


def ids(cluster: Cluster) -> set[str]:
    return {table.metadata.id for table in tables_of(cluster, cluster.topic("t"))}
