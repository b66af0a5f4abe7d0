"""A deleted topic comes back whole, with its id, until its files may go; whoever dies or sleeps meanwhile."""

from collections.abc import Callable

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, purge_topic, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import CorruptLog, NotLeader, TopicDeleted, TopicExists, UnknownTopic
from log_tables.limits import DELETED_KEPT_MAX
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    crash_after,
    crash_before,
)
from tests.kit.clusters import another, directories, ended, names
from tests.kit.failures import before
from tests.kit.partitions import append, values

DAY_MS = 24 * 60 * 60 * 1000


def made(cluster: Cluster, *records: bytes, partitions: int = 2) -> str:
    """The id of a new topic t with these records in its first partition, folded."""
    topic = create_topic(cluster, "t", partitions, {"compression.type": "lz4"})
    if records:
        append(cluster.claim(topic, 0), *records)
    fold(topic)
    return topic.topic_id


def test_a_deleted_topic_comes_back_as_it_was(cluster: Cluster, clock: ManualClock, store: Store) -> None:
    topic_id = made(cluster, b"a", b"b")
    elsewhere = another(cluster)
    delete_topic(cluster, "t")
    (found,) = deletions(cluster)
    assert (found.name, found.topic_id, found.partitions, found.records) == ("t", topic_id, 2, 2)
    assert (found.bytes > 0, found.until_ms - found.deleted_ms) == (True, DAY_MS)
    assert names(elsewhere) == []
    clock.advance(DAY_MS - 1)
    assert sweep(cluster) == []
    topic = undelete_topic(elsewhere, "t")
    assert (topic.topic_id, topic.partition_count, topic.config["compression.type"]) == (topic_id, 2, "lz4")
    append(elsewhere.claim(topic, 0), b"c")
    assert values(another(cluster).topic("t").partition(0)) == [b"a", b"b", b"c"]
    assert deletions(elsewhere) == []
    fold(topic)
    assert len(topic.table().snapshot.of(0)) == 2
    clock.advance(2 * DAY_MS)
    assert sweep(cluster) == []
    assert check(store).problems == []
    assert undelete_topic(cluster, "t").topic_id == topic_id  # a repeat


def test_a_topic_goes_and_comes_back_many_times(cluster: Cluster, store: Store) -> None:
    topic_id = made(cluster)
    for number in range(3):
        append(cluster.claim(cluster.topic("t"), 0), b"%d" % number)
        delete_topic(cluster, "t")
        assert undelete_topic(cluster, "t").topic_id == topic_id
        add_partitions(cluster, "t", 3 + number)
    assert values(cluster.topic("t").partition(0)) == [b"0", b"1", b"2"]
    append(cluster.claim(cluster.topic("t"), 4), b"new")
    delete_topic(cluster, "t")
    assert check(store).problems == []
    undelete_topic(another(cluster), "t")
    assert values(another(cluster).topic("t").partition(4)) == [b"new"]
    assert check(store).problems == []


def test_a_topic_comes_back_under_another_name_beside_the_one_that_has_its_own(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    topic_id = made(cluster, b"old")
    delete_topic(cluster, "t")
    append(cluster.claim(create_topic(cluster, "t"), 0), b"new")
    with pytest.raises(TopicExists, match=r"--as NAME"):
        undelete_topic(cluster, "t")
    other = undelete_topic(cluster, "t", new_name="other")
    assert (other.topic_id, other.directory) == (topic_id, "topics/t")
    assert undelete_topic(cluster, "t", topic_id, "other").topic_id == topic_id  # a repeat
    for there in (cluster, another(cluster)):
        assert values(there.topic("other").partition(0)) == [b"old"]
        assert values(there.topic("t").partition(0)) == [b"new"]
    clock.advance(30 * DAY_MS)
    assert sweep(another(cluster)) == []
    assert check(store).problems == []
    delete_topic(cluster, "other")
    delete_topic(cluster, "t")
    assert check(store).problems == []
    assert undelete_topic(cluster, "other", new_name="third").directory == "topics/t"
    clock.advance(2 * DAY_MS)
    assert sweep(cluster) == ["topics/t~2"]
    assert values(another(cluster).topic("third").partition(0)) == [b"old"]
    append(cluster.claim(create_topic(cluster, "t"), 0), b"again")
    delete_topic(cluster, "third")
    clock.advance(2 * DAY_MS)
    assert sweep(another(cluster)) == ["topics/t"]
    assert check(store).problems == []
    assert values(another(cluster).topic("t").partition(0)) == [b"again"]


def test_an_older_incarnation_comes_back_by_its_id(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    first = made(cluster, b"first")
    delete_topic(cluster, "t")
    made(cluster, b"second")
    delete_topic(cluster, "t")
    assert undelete_topic(cluster, "t", first).topic_id == first
    assert values(another(cluster).topic("t").partition(0)) == [b"first"]
    clock.advance(3 * DAY_MS)
    assert sweep(cluster) == ["topics/t~2"]
    assert check(store).problems == []
    with pytest.raises(UnknownTopic, match="no deleted topic 'u'"):
        undelete_topic(cluster, "u")


def test_its_space_is_freed_at_once_or_after_its_time(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    made(cluster, b"a")
    delete_topic(cluster, "t")
    made(cluster, b"b")
    delete_topic(cluster, "t")
    assert purge_topic(cluster, "t").records == 1
    assert [each.topic_id for each in deletions(cluster)] != []
    left = {item.path.split("/")[1] for item in store.list("topics/") if item.path.endswith(".parquet")}
    assert left - {"__cluster_metadata"} == {"t"}
    clock.advance(DAY_MS + 1)
    assert sweep(cluster) == ["topics/t", "topics/t~2"]
    assert deletions(cluster) == []
    with pytest.raises(UnknownTopic, match="its files are gone"):
        undelete_topic(another(cluster), "t")
    assert check(store).problems == []


def test_no_clock_but_all_of_them_take_a_deleted_topic(cluster: Cluster, clock: ManualClock) -> None:
    """The machine that sweeps believes that a year has gone by; the store does not."""
    made(cluster, b"a")
    delete_topic(cluster, "t")
    ahead = Cluster.open(cluster.store, ManualClock(clock.now_ms() + 365 * DAY_MS), "http://ahead")
    assert sweep(ahead) == []
    assert values(undelete_topic(cluster, "t").partition(0)) == [b"a"]


def test_only_the_newest_of_a_name_are_kept(cluster: Cluster) -> None:
    ids = []
    for _ in range(DELETED_KEPT_MAX + 2):
        ids.append(create_topic(cluster, "t").topic_id)
        delete_topic(cluster, "t")
    assert [each.topic_id for each in deletions(cluster)] == ids[2:]
    create_topic(cluster, "u", 1, {"topic.delete.delay.ms": "0"})
    delete_topic(cluster, "u")
    assert {each.name for each in deletions(cluster)} == {"t"}


def copy_of(store: Store) -> Store:
    copied = open_store("memory://")
    for item in store.list(""):
        copied.put(item.path, store.get(item.path))
    return copied


ACTS: dict[str, Callable[[Cluster], object]] = {
    "same": lambda cluster: undelete_topic(cluster, "t"),
    "other": lambda cluster: undelete_topic(cluster, "t", new_name="other"),
    "purge": lambda cluster: purge_topic(cluster, "t"),
}


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("name", ACTS)
def test_an_act_that_dies_at_any_write_is_done_whole_or_not_at_all(
    clock: ManualClock, name: str, failure: Failure
) -> None:
    root = open_store("memory://")
    first = Cluster.open(root, clock)
    made(first, b"kept")
    delete_topic(first, "t")
    seen = set()
    for nth in range(1, 40):
        inner = copy_of(root)
        try:
            ACTS[name](Cluster.open(FaultyStore(inner, [Fault(nth, failure)]), clock))
        except Crash:
            pass
        else:
            break
        survivor = Cluster.open(inner, clock, "http://second")
        found = [topic.name for topic in survivor.topics()]
        seen.add(bool(found) or not deletions(survivor))
        if found:
            topic = survivor.topic(found[0])
            read = survivor.with_current_topic(found[0], lambda topic: values(topic.partition(0)))
            assert read == [b"kept"]
            append(survivor.claim(topic, 0), b"after")
        sweep(survivor)  # it lets the tables go on, too
        assert check(ClockedStore(inner, clock)).problems == []
        if name == "purge" and not deletions(survivor):
            continue
        again = "other" if name == "other" else "t"
        undelete_topic(survivor, "t", new_name=again)
        assert values(survivor.topic(again).partition(0))[:1] == [b"kept"]
        assert check(ClockedStore(inner, clock)).problems == []
    else:
        raise AssertionError("it never ends")
    assert seen == {False, True} or failure is crash_before


def test_who_led_it_before_its_deletion_leads_no_more(cluster: Cluster) -> None:
    made(cluster, b"a")
    stale = another(cluster)
    log = stale.claim(stale.topic("t"), 0)
    delete_topic(cluster, "t")
    undelete_topic(cluster, "t")
    with pytest.raises(NotLeader):
        append(log, b"lost")
    with pytest.raises(TopicDeleted):
        stale.claim(stale.topic("t"), 0)
    append(stale.claim(stale.topic("t"), 0), b"b")
    assert values(another(cluster).topic("t").partition(0)) == [b"a", b"b"]


def test_a_deletion_that_slept_does_not_end_what_came_back(cluster: Cluster, store: Store) -> None:
    made(cluster, b"a")

    def come_back() -> None:
        elsewhere = another(cluster)
        delete_topic_again(elsewhere)
        undelete_topic(elsewhere, "t")

    failing = FaultyStore(store, [Fault(1, before(come_back), path="topics/t/partition=0/_delta_log")])
    delete_topic(another(cluster, failing), "t")
    assert values(another(cluster).topic("t").partition(0)) == [b"a"]
    assert check(store).problems == []


def delete_topic_again(cluster: Cluster) -> None:
    """Finish the deletion that another process is in."""
    with pytest.raises(UnknownTopic):
        cluster.topic("t")
    delete_topic(cluster, "t")


def test_an_undelete_that_slept_does_not_revive_what_was_deleted_again(
    cluster: Cluster, store: Store
) -> None:
    made(cluster, b"a")
    delete_topic(cluster, "t")

    def delete_again() -> None:
        elsewhere = another(cluster)
        delete_topic(elsewhere, "t")
        create_topic(elsewhere, "t")

    failing = FaultyStore(store, [Fault(1, before(delete_again), path="topics/t/partition=0/_delta_log")])
    undelete_topic(another(cluster, failing), "t")
    assert ended(cluster, "topics/t", 2) == [True, True]
    assert values(another(cluster).topic("t").partition(0)) == []
    assert check(store).problems == []
    assert values(undelete_topic(cluster, "t", new_name="u").partition(0)) == [b"a"]


def test_a_sweep_that_comes_first_leaves_nothing_to_bring_back(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    slow, faults = asked(cluster)
    clock.advance(DAY_MS)
    faults.append(Fault(1, before(lambda: sweep(another(cluster))), path="topics/__cluster_metadata"))
    with pytest.raises(UnknownTopic, match="at the same time"):
        undelete_topic(slow, "t")
    assert names(another(cluster)) == []
    assert check(store).problems == []


def test_an_undelete_that_comes_first_keeps_its_files_from_a_sweep(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    slow, faults = asked(cluster)
    clock.advance(DAY_MS)
    faults.append(Fault(1, before(lambda: undelete_topic(another(cluster), "t")), path="topics/__cluster"))
    assert sweep(slow) == []
    assert values(another(cluster).topic("t").partition(0)) == [b"a"]
    assert check(store).problems == []


def asked(cluster: Cluster) -> tuple[Cluster, list[Fault]]:
    """Another process, which knows that the topic t was deleted; and the faults that it will meet."""
    made(cluster, b"a")
    delete_topic(cluster, "t")
    failing = FaultyStore(cluster.store)
    return another(cluster, failing), failing.faults


def test_a_topic_comes_back_to_a_name_that_it_had_before(cluster: Cluster, store: Store) -> None:
    topic_id = made(cluster, b"a")
    for name, new_name in (("t", "u"), ("u", "t"), ("t", "u"), ("u", "t")):
        delete_topic(cluster, name)
        assert undelete_topic(cluster, name, new_name=new_name).topic_id == topic_id
        assert check(store).problems == []
    assert values(another(cluster).topic("t").partition(0)) == [b"a"]


def test_two_operators_bring_one_topic_back_at_once(cluster: Cluster, store: Store) -> None:
    slow, faults = asked(cluster)

    def first() -> None:
        undelete_topic(another(cluster), "t", new_name="mine")

    faults.append(Fault(1, before(first), path="topics/__cluster_metadata"))
    with pytest.raises(UnknownTopic, match="at the same time"):
        undelete_topic(slow, "t")
    assert names(another(cluster)) == ["mine"]
    assert check(store).problems == []


def test_who_met_the_end_of_a_log_that_another_has_lifted_since_goes_on(
    cluster: Cluster, store: Store
) -> None:
    made(cluster, b"a")
    delete_topic(cluster, "t")
    found: list[tuple[Topic, TopicDeleted]] = []

    def look() -> None:
        topic = cluster.topic("t")
        with pytest.raises(TopicDeleted) as error:
            topic.partition(0).refresh()
        found.append((topic, error.value))

    lifting = Fault(1, before(look), path="topics/t/partition=0/_delta_log")
    undelete_topic(another(cluster, FaultyStore(store, [lifting])), "t")
    ((topic, error),) = found
    topic.partition(0).refresh()  # by another request
    assert cluster.current_topic(topic, 2, error) is topic
    delete_topic(another(cluster), "t")
    with pytest.raises(UnknownTopic):
        cluster.current_topic(topic, 2, error)


def test_a_table_that_is_missing_keeps_the_topic_deleted(cluster: Cluster, store: Store) -> None:
    made(cluster, b"a")
    delete_topic(cluster, "t")
    for item in [*store.list("topics/t/partition=1/")]:
        store.delete(item.path)
    with pytest.raises(CorruptLog, match="cannot be brought back whole"):
        undelete_topic(another(cluster), "t")
    assert names(cluster) == []


def test_a_check_finds_a_deletion_that_ends_no_log_also_of_a_topic_with_another_name(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    made(cluster, b"a")
    delete_topic(cluster, "t")
    undelete_topic(cluster, "t", new_name="back")
    dies = FaultyStore(store, [Fault(1, crash_before, path="topics/t/")])
    with pytest.raises(Crash):
        delete_topic(another(cluster, dies), "back")
    clock.advance(DAY_MS)
    problems = check(ClockedStore(store, clock)).problems
    assert [each for each in problems if "has not ended" in each]
    assert all("topic back " in each for each in problems)


def test_settings_that_were_altered_before_come_back(cluster: Cluster) -> None:
    made(cluster, b"a")
    alter_topic(cluster, "t", {"retention.ms": "5"})
    delete_topic(cluster, "t")
    create_topic(cluster, "t", 1, {"retention.ms": "7"})
    assert undelete_topic(cluster, "t", new_name="u").config["retention.ms"] == "5"
    assert cluster.topic("t").config["retention.ms"] == "7"
    assert directories(cluster.store) == {"topics/t", "topics/t~2"}
