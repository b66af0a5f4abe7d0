"""A standby that is promoted is a root of its own, whatever it dies of meanwhile, and follows nobody."""

from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from jobs.replica.table_log import Diverged, put_read, read_file, read_on
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential import ApiKeyRecord
from log_tables.cluster.credential_log import api_key_record, create_credentials, open_credentials
from log_tables.cluster.standby import put_mark, read_mark
from log_tables.errors import Conflict, CorruptLog, InvalidArgument
from log_tables.layout import CREDENTIALS_DIRECTORY
from log_tables.root.adopt import adopt
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, HoldingStore, crash_after, crash_before
from tests.kit.partitions import append, append_each, values
from tests.kit.standby import follow
from tests.kit.standby_workload import Workload
from tests.kit.tiers import move_topic, tiered_cluster
from tests.kit.unfolding import QuickClock

VALUES = [b"0", b"1", b"2", b"3"]


@pytest.fixture
def original() -> Workload:
    made = Workload()
    made.cluster.metadata_log.register_broker("http://original")
    made.work(3)
    return made


@pytest.fixture
def standby(original: Workload) -> Store:
    target = open_store("memory://standby")
    follow(original.recorded.inner, target, clock=QuickClock())
    return target


def test_it_has_another_id_and_no_gateways_and_all_records(original: Workload, standby: Store) -> None:
    made = promote(standby, original.clock)
    cluster = Cluster.open(standby, original.clock, create=False)
    assert cluster.cluster_id == made.cluster_id != original.cluster.cluster_id
    assert made.source == original.store.url
    assert cluster.metadata_log.brokers == {}
    assert read_mark(standby) is None
    assert values(cluster.topic("t").partition(0)) == values(original.partition("t"))
    assert check(standby).problems == []
    append(cluster.claim(cluster.topic("t"), 0), b"goes on")
    check_location(cluster, 0)


def test_it_keeps_its_id_if_told(original: Workload, standby: Store) -> None:
    assert promote(standby, original.clock, keep_id=True).cluster_id == original.cluster.cluster_id
    assert check(standby).problems == []


def test_a_new_id_does_not_part_it_from_records_in_a_remote_root(tmp_path: Path, clock: ManualClock) -> None:
    """It is refused before anything is changed, and the standby follows on."""
    tiered, inner = tiered_cluster(tmp_path, clock), open_store(tmp_path / "standby")
    append_each(tiered.claim(create_topic(tiered, "t", configs={"remote.storage.enable": "true"}), 0), VALUES)
    move_topic(tiered, "t", [2])
    follow(tiered.store, inner)
    for force in (False, True):
        with pytest.raises(InvalidArgument, match="use --keep-id if the original no longer exists"):
            promote(inner, clock, force=force)
    append(tiered.claim(tiered.topic("t"), 0), b"more")
    follow(tiered.store, inner)
    assert promote(inner, clock, keep_id=True).cluster_id == tiered.cluster_id
    cluster = Cluster.open(inner, clock, create=False)
    assert values(cluster.topic("t").partition(0)) == [*VALUES, b"more"]
    move_topic(cluster, "t", [1])
    with pytest.raises(CorruptLog, match="belongs to another root of this cluster id"):
        move_topic(tiered, "t", [1])
    assert check(inner).problems == []


def test_another_root_is_no_standby(original: Workload, standby: Store) -> None:
    with pytest.raises(InvalidArgument, match="is no standby"):
        promote(original.store, original.clock)
    promote(standby, original.clock)
    with pytest.raises(InvalidArgument, match="is no standby"):
        promote(standby, original.clock)


def test_a_standby_that_is_not_of_one_moment_is_promoted_by_force_alone(
    original: Workload, standby: Store
) -> None:
    mark = read_mark(standby)
    assert mark is not None
    put_mark(standby, replace(mark, is_level=False))
    with pytest.raises(CorruptLog, match="not of one moment yet"):
        promote(standby, original.clock)
    assert read_mark(standby) == replace(mark, is_level=False)
    promote(standby, original.clock, force=True)
    assert check(standby).problems == []


def test_nobody_else_writes_to_a_standby(original: Workload, standby: Store) -> None:
    cluster = Cluster.open(standby, original.clock, create=False)
    with pytest.raises(Conflict, match="only `lakelog replicate` writes to it"):
        create_topic(cluster, "mine")
    with pytest.raises(Conflict, match="lakelog root promote"):
        check_location(cluster, 0)  # as a gateway and maintenance begin
    with pytest.raises(Conflict, match="lakelog root promote"):
        adopt(standby, original.clock, 0)


def test_it_is_promoted_after_a_crash_at_any_write(original: Workload, standby: Store) -> None:
    recorded = [(item.path, standby.get(item.path)) for item in standby.list("")]
    died = True
    for number in count(1):
        if not died:
            break
        inner = open_store("memory://another")
        for path, data in recorded:
            inner.put(path, data)
        faulty = FaultyStore(inner, [Fault((number + 1) // 2, (crash_before, crash_after)[number % 2])])
        try:
            promote(faulty, ManualClock(seed=number))
        except Crash:
            mark = read_mark(inner)
            if mark is not None and mark.is_promoted:
                with pytest.raises(Conflict, match="was interrupted"):
                    check_location(Cluster.open(inner, original.clock, create=False), 0)
                with pytest.raises(Conflict, match="was promoted"):
                    follow(original.recorded.inner, inner, clock=QuickClock())
            if mark is not None:
                promote(inner, ManualClock(seed=1000 + number))
        died = faulty.dead
        assert read_mark(inner) is None
        cluster = Cluster.open(inner, original.clock, create=False)
        assert cluster.cluster_id != original.cluster.cluster_id
        assert cluster.metadata_log.brokers == {}
        assert check(inner).problems == []
    assert number > 20


def test_a_key_of_the_old_cluster_does_not_come_after_the_promotion(original: Workload) -> None:
    source, target = original.recorded.inner, open_store("memory://with-keys")
    credentials = create_credentials(source, original.clock, "")
    follow(source, target, clock=QuickClock(), with_credentials=True)
    version = credentials.partition.snapshot.version + 1
    promote(target, SystemClock())
    late = ApiKeyRecord("late", "User:late", b"x" * 32, 1, None)
    credentials.change(lambda _: [api_key_record(late)])
    read = read_on(
        source, CREDENTIALS_DIRECTORY, version, lambda add: read_file(source, CREDENTIALS_DIRECTORY, add)
    )
    with pytest.raises(Diverged):
        put_read(target, CREDENTIALS_DIRECTORY, read[0], original.clock)
    found = open_credentials(target, original.clock, "")
    assert found is not None
    assert found.credentials.api_keys == {}
    assert check(target).problems == []


def test_a_replication_that_sleeps_in_a_put_is_fenced(original: Workload, standby: Store) -> None:
    """It wakes after the promotion: its commit is there already, and another one."""
    held = HoldingStore(standby, "topics/t/partition=0/_delta_log", {"put_if_absent"})
    promoted: list[str] = []
    held.hold()

    def wake() -> bool:
        if held.held and not promoted:
            promoted.append(promote(standby, SystemClock()).cluster_id)
            held.let_go()
        return False

    append(original.partition("t"), b"too late")
    with pytest.raises(Conflict, match="promoted"):
        follow(original.recorded.inner, held, wake, QuickClock())
    assert promoted != []
    made = Cluster.open(standby, original.clock, create=False)
    assert b"too late" not in values(made.topic("t").partition(0))
    assert check(standby).problems == []
