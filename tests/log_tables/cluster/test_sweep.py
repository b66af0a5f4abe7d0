"""The sweep deletes files that no topic names and nobody can need any longer, and no others."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import msgspec
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown, StoreUnavailable
from log_tables.layout import METADATA_DIRECTORY
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.record import to_records
from log_tables.store.store import Store
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import create_table
from log_tables.testing import Crash, Failure, Fault, FaultyStore, crash_after, unavailable
from tests.kit.clusters import another, directories, names
from tests.kit.failures import before
from tests.kit.partitions import append, values

HOUR_MS = 60 * 60 * 1000


def test_the_files_of_a_deleted_topic_go_after_its_delay_and_its_log_an_hour_later(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    topic = create_topic(cluster, "t", 2, {"file.delete.delay.ms": "5000", "topic.delete.delay.ms": "0"})
    append(cluster.claim(topic, 0), b"a")
    create_topic(cluster, "live")
    delete_topic(cluster, "t")
    data = f"topics/t/partition=0/{topic.partition(0).snapshot.segments[0].path}"
    clock.advance(4_999)
    assert sweep(cluster) == []
    assert store.head(data).size > 0
    clock.advance(1)
    assert sweep(cluster) == []
    left = [item.path for item in store.list("topics/t/")]
    assert left
    assert all("/_delta_log/" in path for path in left)
    clock.advance(LOG_RETENTION_MS - 1)
    assert sweep(cluster) == []
    clock.advance(1)
    assert sweep(cluster) == ["topics/t"]
    assert directories(store) == {"topics/live"}
    assert sweep(cluster) == []
    assert names(another(cluster)) == ["live"]
    assert create_topic(cluster, "t").directory == "topics/t~2"


def test_a_re_created_topic_survives_the_sweep_of_the_old_one(cluster: Cluster, clock: ManualClock) -> None:
    for _ in range(2):
        create_topic(cluster, "t", 1, {"file.delete.delay.ms": "1"})
        append(cluster.claim(cluster.topic("t"), 0), b"old")
        delete_topic(cluster, "t")
    create_topic(cluster, "t", 1, {"file.delete.delay.ms": "1"})
    append(cluster.claim(cluster.topic("t"), 0), b"kept")
    clock.advance(30 * 24 * HOUR_MS)
    assert sweep(another(cluster)) == ["topics/t", "topics/t~2"]
    assert sweep(another(cluster)) == []
    assert values(another(cluster).topic("t").partition(0)) == [b"kept"]
    log = cluster.metadata_log.partition
    log.refresh()
    last = to_records(log.fetch(log.high_watermark - 1, 1))[0]
    assert msgspec.json.decode(last.value or b"", type=TopicRecord).deleted == {}


def of_another_gateway(_: Callable[[], object]) -> object:
    raise NotLeader("another changes it, on purpose; repeat it")


def unknown(_: Callable[[], object]) -> object:
    raise OutcomeUnknown("nobody knows whether it was done, on purpose; read first")


@pytest.mark.parametrize(
    ("failure", "error"),
    [(unavailable, StoreUnavailable), (of_another_gateway, NotLeader), (unknown, OutcomeUnknown)],
)
def test_what_cannot_be_removed_keeps_nothing_else(
    cluster: Cluster, clock: ManualClock, store: Store, failure: Failure, error: type[LakelogError]
) -> None:
    for name in "ab":
        create_topic(cluster, name, 1, {"topic.delete.delay.ms": "0"})
        delete_topic(cluster, name)
    clock.advance(2 * HOUR_MS)
    at = {"delete"} if failure is unknown else {"list"}
    lame = another(cluster, FaultyStore(store, [Fault(1, failure, at, "topics/a")]))
    with pytest.raises(error):
        sweep(lame)
    assert directories(store) == {"topics/a"}
    assert sweep(lame) == ["topics/a"]


def test_a_half_created_topic_vanishes_when_nobody_can_be_creating_it_any_more(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    dying = another(cluster, FaultyStore(store, [Fault(2, crash_after, path="topics/t")]))
    with pytest.raises(Crash):
        create_topic(dying, "t", 3)
    clock.advance(LOG_RETENTION_MS - 1)
    assert sweep(cluster) == []
    assert directories(store) == {"topics/t"}
    clock.advance(1)
    assert sweep(cluster) == ["topics/t"]
    assert directories(store) == set()


def test_a_creation_that_slept_gives_up_before_its_tables_are_swept(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    def sleep() -> None:
        clock.advance(int(CONFIRMATION_MAX_AGE_S * 1000) + 1)

    slow = another(cluster, FaultyStore(store, [Fault(2, before(sleep), path="topics/t")]))
    with pytest.raises(StoreUnavailable, match="took more than 30 minutes"):
        create_topic(slow, "t", 3)
    assert names(cluster) == []
    clock.advance(LOG_RETENTION_MS)
    assert sweep(cluster) == ["topics/t"]
    assert create_topic(cluster, "t").directory == "topics/t"


@pytest.mark.parametrize("path", ["0", "_delta_log/"], ids=["before the record is put", "amid its commit"])
def test_a_creation_that_slept_is_not_recorded_when_its_tables_are_swept(
    cluster: Cluster, clock: ManualClock, store: Store, path: str
) -> None:
    def sleep() -> None:
        clock.advance(LOG_RETENTION_MS + 1)
        assert sweep(another(cluster)) == ["topics/t"]

    failing = FaultyStore(store)
    slow = another(cluster, failing)
    create_topic(slow, "other")  # it leads the metadata log from here on
    failing.faults.append(Fault(1, before(sleep), path=f"{METADATA_DIRECTORY}/{path}"))
    with pytest.raises(StoreUnavailable, match="took more than 30 minutes"):
        create_topic(slow, "t")
    assert names(another(cluster)) == ["other"]
    create_topic(cluster, "t")


def test_a_sweep_waits_for_a_change_in_flight_to_learn_what_others_made(
    cluster: Cluster, clock: ManualClock
) -> None:
    """A process falls asleep in a change, and wakes in a sweep, before that change has gone on."""
    sleepy, elsewhere = another(cluster), another(cluster)
    in_flight, done = threading.Event(), threading.Event()

    def change(_: Snapshot) -> None:
        in_flight.set()
        assert done.wait(60)

    with ThreadPoolExecutor(2) as pool:
        changing = pool.submit(sleepy.metadata_log.partition.table.transact, change)
        assert in_flight.wait(60)
        append(elsewhere.claim(create_topic(elsewhere, "t"), 0), b"kept")
        clock.advance(2 * HOUR_MS)
        sweeping = pool.submit(sweep, sleepy)
        wait([sweeping], timeout=0.1)  # it would be through by then
        done.set()
        changing.result()
        assert sweeping.result() == []
    assert values(another(cluster).topic("t").partition(0)) == [b"kept"]


def test_a_sweep_that_slept_removes_nothing_that_was_half_created_before(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    """The sweep sees a directory that no record names yet, and sleeps until its creation is complete."""
    create_table(store, "topics/t/partition=0", clock)

    def created() -> None:
        cluster.metadata_log.change_topic("t", lambda _: TopicRecord("t", "id", 1, 1, {}))
        append(cluster.claim(cluster.topic("t"), 0), b"kept")
        clock.advance(2 * HOUR_MS)

    sweeper = another(cluster, FaultyStore(store, [Fault(1, before(created), {"list"}, "topics/t")]))
    assert sweep(sweeper) == []
    assert values(another(cluster).topic("t").partition(0)) == [b"kept"]
    assert sweep(sweeper) == []


def test_a_sweep_leaves_internal_topics_and_strangers_alone(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    store.put("topics/__consumer_offsets/partition=0/x", b"")
    store.put("topics/no topic/x", b"")
    store.put("elsewhere/x", b"")
    clock.advance(30 * 24 * HOUR_MS)
    assert sweep(cluster) == []
    assert store.head("topics/no topic/x").size == 0
