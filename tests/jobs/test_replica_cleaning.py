"""Files and topics that the original removes go from its standby, neither too early nor never."""

from collections.abc import Callable, Iterator

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import purge_topic, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import METADATA_DIRECTORY
from log_tables.root.promote import promote
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.testing import Call, ClockedStore, Crash, Fault, FaultyStore, HoldingStore, crash_before
from tests.kit.partitions import append, append_each, bury, values
from tests.kit.standby import Apart, apart, copied, files, follow, has, newest_versions
from tests.kit.standby_workload import HOUR_MS, Workload
from tests.kit.unfolding import QuickClock

HERE = "topics/t/partition=0"
AGAIN = "topics/again/"


class Skipping(Apart):
    """A clock apart, on which hours pass at once."""

    hours = 0

    def monotonic(self) -> float:
        return super().monotonic() + self.hours * 3600


def steps_of(going: Iterator[bool]) -> Callable[[], bool]:
    return lambda: next(going)


def replicate(source: Store, target: Store) -> None:
    follow(source, target, clock=QuickClock())


def is_gone(target: Store) -> bool:
    return not [*target.list(AGAIN)]


@apart
def test_files_go_when_they_are_old_however_late_the_original_removes_them(apart_ms: int) -> None:
    """The last merge of a table that is quiet from then on; its vacuum comes a day later."""
    source, there = FaultyStore(open_store("memory://original")), ManualClock()
    cluster, clock = Cluster.open(source.inner), Skipping(there, apart_ms)
    partition = cluster.claim(create_topic(cluster, "t", 1), 0)
    append_each(partition, [b"1", b"2"])
    target = ClockedStore(open_store("memory://standby"), clock)
    inputs = partition.snapshot.segments
    merged = {f"{HERE}/{each.path}" for each in inputs}

    def looked() -> int:
        return source.calls.count(Call("list", f"{HERE}/"))

    def until_next_look(hours: int) -> Iterator[bool]:
        before, clock.hours = looked(), clock.hours + hours
        while looked() == before:
            yield False

    def steps() -> Iterator[bool]:
        while not looked():
            yield False
        assert commit_merge(partition.table, inputs, merge(source.inner, HERE, inputs, "zstd", cluster.clock))
        while not has(target, newest_versions(source.inner)):
            yield False
        yield from until_next_look(2)
        source.inner.delete_objects(sorted(merged))
        yield from until_next_look(26)
        assert files(target).keys() >= merged, "a reader of the standby may be reading them"
        there.advance(2 * HOUR_MS)
        yield from until_next_look(26)
        while files(target).keys() & merged:
            yield False
        yield True

    follow(source, target, steps_of(steps()), clock)
    assert files(target) == files(source.inner)


def test_a_topic_goes_though_the_process_dies_when_it_hears_of_its_end() -> None:
    made, target = Workload(), open_store("memory://standby")
    made.make_again()
    replicate(made.recorded.inner, target)
    made.make_again()
    made.make_again()
    with pytest.raises(Crash):
        replicate(made.recorded.inner, FaultyStore(target, [Fault(1, crash_before, {"delete"}, AGAIN)]))
    assert not is_gone(target)
    follow(made.recorded.inner, target, lambda: is_gone(target), QuickClock())
    assert [*target.list("topics/again~2/")] != []


def test_a_topic_goes_though_the_record_of_its_end_comes_with_a_checkpoint() -> None:
    made, target = Workload(), open_store("memory://standby")
    made.make_again()
    replicate(made.recorded.inner, target)
    made.make_again()
    made.make_again()
    made.wait(2 * HOUR_MS)
    bury(made.cluster.metadata_log.partition)
    append(made.partition("again"), b"3")
    follow(made.recorded.inner, target, lambda: is_gone(target), QuickClock())
    assert files(target) == files(made.recorded.inner)


def test_a_deleted_topic_is_whole_as_long_as_the_standby_says_that_it_can_come_back() -> None:
    """The original has given it up, and removed its files; the record that says so does not come over."""
    made, inner = Workload(), open_store("memory://standby")
    made.make_again()
    expected = values(made.partition("again"))
    clock = Skipping(made.clock, 0)
    target = ClockedStore(inner, clock)
    delete_topic(made.cluster, "again")
    follow(made.recorded.inner, target, clock=clock)
    made.wait(2 * HOUR_MS)
    purge_topic(made.cluster, "again")
    assert not [path for path in files(made.recorded.inner) if path.startswith(AGAIN)]
    held, then = HoldingStore(target, METADATA_DIRECTORY, {"put_if_absent"}), list[Store]()

    def steps() -> Iterator[bool]:
        yield from (False for _ in range(8))  # in each round the files of a table may be compared
        then.append(copied(inner))
        held.let_go()
        yield True

    held.hold()
    follow(made.recorded.inner, held, steps_of(steps()), clock)
    promote(then[0], ManualClock())
    cluster = Cluster.open(then[0], ManualClock(), create=False)
    assert values(undelete_topic(cluster, "again").partition(0)) == expected
