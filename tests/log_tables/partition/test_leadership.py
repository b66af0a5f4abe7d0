"""Who leads a partition, who is fenced, and what maintenance beside a leader leaves alone."""

from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import NotLeader
from log_tables.layout import PROPERTY_FILE_RETENTION
from log_tables.partition.partition import Partition
from log_tables.root.table_check import check_partition
from log_tables.segments import rewrite
from log_tables.store.store import Store
from log_tables.table.commit import read_commit
from log_tables.testing import Fault, FaultyStore
from tests.kit.partitions import TABLE, another, append, append_each, entry, sound, values

COMMITS = {"put_if_absent"}


def test_who_has_not_claimed_cannot_append(store: Store, partition: Partition) -> None:
    other = another(partition)
    assert not other.leading
    with pytest.raises(NotLeader):
        append(other, b"x")
    with pytest.raises(NotLeader):
        other.commit([partition.sequence(entry(b"x"))])


def test_a_fenced_leader_cannot_append(partition: Partition) -> None:
    append(partition, b"mine")
    other = another(partition)
    other.claim("http://second")
    with pytest.raises(NotLeader, match="leader epoch 2"):
        append(partition, b"lost")
    assert not partition.leading
    append(other, b"theirs")
    assert values(another(partition)) == [b"mine", b"theirs"]
    assert (other.snapshot.leader_epoch, other.log_end) == (2, 2)


def test_a_fenced_leader_cannot_append_after_the_new_one_has(partition: Partition) -> None:
    other = another(partition)
    other.claim("http://second")
    append_each(other, [b"a", b"b"])
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    partition.claim("http://first")
    assert append(partition, b"c") == 2
    assert values(another(partition)) == [b"a", b"b", b"c"]


def test_a_claim_says_who_leads_and_where(partition: Partition) -> None:
    another(partition).claim("http://second:8082")
    commit = read_commit(partition.table.store, TABLE, 2)
    assert commit is not None
    assert (commit.info.operation, commit.info.leaderUrl, commit.info.leaderEpoch) == (
        "CLAIM", "http://second:8082", 2,
    )  # fmt: skip
    assert [*commit.adds, *commit.removes] == []


def test_who_leads_is_known_until_the_next_claim_whatever_the_age_of_the_log(
    partition: Partition, clock: ManualClock
) -> None:
    assert partition.snapshot.leader_broker == 0
    partition.claim("http://third", 3)
    append(partition, b"a")
    clock.advance(30 * 24 * 60 * 60 * 1000)
    for checkpointed in (False, True):
        if checkpointed:
            partition.checkpoint()
            assert check_partition(partition.table.store, TABLE).problems == []
        assert another(partition).snapshot.leader_broker == 3
    another(partition).claim("http://job")
    assert partition.refresh().leader_broker == 0


def test_a_claim_again_by_the_leader_voids_what_it_had_sequenced(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    partition.claim("http://first")
    assert partition.log_end == 0
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    assert partition.leading
    assert append(partition, b"kept") == 0
    assert values(another(partition)) == [b"kept"]


def test_what_was_sequenced_in_an_earlier_term_is_void(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    other = another(partition)
    other.claim("http://second")
    partition.refresh()
    assert not partition.leading
    partition.claim("http://first")
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    assert values(another(partition)) == []


def test_a_leader_that_hears_of_another_stops_by_itself(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    another(partition).claim("http://second")
    partition.refresh()
    assert not partition.leading
    assert partition.log_end == partition.high_watermark == 0
    attempts: list[Callable[[], object]] = [
        lambda: partition.sequence(entry(b"x")),
        lambda: partition.commit([waiting]),
    ]
    for attempt in attempts:
        with pytest.raises(NotLeader):
            attempt()


def test_a_leader_that_resigns_leads_no_more(partition: Partition) -> None:
    waiting = partition.sequence(entry(b"lost"))
    partition.resign()
    assert not partition.leading
    with pytest.raises(NotLeader):
        partition.commit([waiting])
    with pytest.raises(NotLeader):
        append(partition, b"x")


def test_maintenance_between_two_appends_does_not_disturb_them(partition: Partition) -> None:
    append_each(partition, [b"0", b"1", b"2"])
    other = another(partition)
    inputs = other.snapshot.segments
    merged = rewrite.merge(other.table.store, TABLE, inputs, "lz4", other.clock)
    assert rewrite.commit_merge(other.table, inputs, merged)
    assert append(partition, b"3") == 3
    other.truncate(2)
    assert append(partition, b"4") == 4
    other.set_properties({PROPERTY_FILE_RETENTION: "interval 48 hours"})
    waiting = partition.sequence(entry(b"5"))
    other.truncate(3)
    partition.commit([waiting])
    assert partition.leading
    assert values(another(partition)) == [b"3", b"4", b"5"]
    assert sound(partition)


def test_maintenance_is_not_disturbed_by_appends(store: Store, partition: Partition) -> None:
    append_each(partition, [b"0", b"1", b"2"])

    def meanwhile(perform: Callable[[], object]) -> object:
        append(partition, b"3")
        return perform()

    other = another(partition, FaultyStore(store, [Fault(1, meanwhile, COMMITS)]))
    inputs = other.snapshot.segments
    merged = rewrite.merge(store, TABLE, inputs, "zstd", other.clock)
    assert rewrite.commit_merge(other.table, inputs, merged)
    assert [segment.records for segment in other.snapshot.segments] == [3, 1]
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]
