"""A deletion or an undelete that has come over in part when the standby is promoted is finished."""

from collections.abc import Iterator
from itertools import count

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import read_mark
from log_tables.errors import LakelogError
from log_tables.layout import METADATA_DIRECTORY
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.partitions import append, values
from tests.kit.standby import CheckedStandby, copied, follow
from tests.kit.standby_workload import Workload
from tests.kit.unfolding import QuickClock


class Promoting(CheckedStandby):
    """A standby of which a copy is promoted after each commit: it is whole, and its topic with the id
    `topic_id` is there, or can be brought back, with the records `expected`.
    """

    def __init__(self, inner: Store, topic_id: str, expected: list[bytes | None]) -> None:
        super().__init__(inner)
        self._topic_id, self._expected = topic_id, expected

    def look(self) -> Iterator[str]:
        yield from check(self.inner).problems
        store, clock = copied(self.inner), ManualClock(seed=1000 + self.checked)
        try:
            promote(store, clock, keep_id=self.checked % 2 == 0)
            yield from (f"once promoted, {each}" for each in check(store).problems)
            cluster = Cluster.open(store, clock, create=False)
            name = cluster.name_of(self._topic_id)
            if name is None:
                topic = undelete_topic(cluster, "t", self._topic_id, new_name="back")
            else:
                topic = cluster.topic(name)
            if values(topic.partition(0)) != self._expected:
                yield f"{topic.name} has {values(topic.partition(0))}"
            append(cluster.claim(topic, 0), b"goes on")
            yield from (f"once it goes on, {each}" for each in check(store).problems)
        except LakelogError as error:
            yield str(error)


@pytest.fixture
def made() -> Workload:
    made = Workload()
    append(made.partition("t"), b"one", b"two")
    made.consume()
    made.fold()
    return made


@pytest.fixture
def target(made: Workload) -> Promoting:
    found = open_store("memory://standby")
    follow(made.recorded.inner, found, clock=QuickClock())
    return Promoting(found, made.cluster.topic("t").topic_id, values(made.partition("t")))


def replicate(made: Workload, target: Store) -> None:
    follow(made.recorded.inner, target, clock=QuickClock())


def test_a_standby_is_promoted_at_any_commit_of_a_deletion_and_of_an_undelete(
    made: Workload, target: Promoting
) -> None:
    delete_topic(made.cluster, "t")
    replicate(made, target)
    assert target.problems == []
    deleted = target.checked
    assert deleted >= 4, "its record, the ends of two partitions, and that of the table over them"
    undelete_topic(made.cluster, "t")
    replicate(made, target)
    assert target.problems == []
    assert target.checked >= deleted + 4


def test_a_standby_is_promoted_at_any_commit_when_a_topic_comes_and_goes(
    made: Workload, target: Promoting
) -> None:
    """All of it at once, as after a while without replication."""
    for _ in range(2):
        delete_topic(made.cluster, "t")
        undelete_topic(made.cluster, "t")
    delete_topic(made.cluster, "t")
    undelete_topic(made.cluster, "t", new_name="u")
    create_topic(made.cluster, "t", 1)
    made.fold()
    replicate(made, target)
    assert target.problems == []
    assert target.checked > 20


def dying_amid(made: Workload) -> Cluster:
    """A process that dies when it has claimed the metadata log, and put one record."""
    fault = Fault(2, crash_after, {"put_if_absent"}, METADATA_DIRECTORY)
    return Cluster.open(FaultyStore(made.store, [fault]), made.clock, create=False)


def test_what_the_original_died_of_is_finished_whatever_the_promotion_dies_of(made: Workload) -> None:
    """Its deletion of a topic, and its undelete of another one."""
    create_topic(made.cluster, "gone", 2)
    delete_topic(made.cluster, "t")
    with pytest.raises(Crash):
        undelete_topic(dying_amid(made), "t")
    with pytest.raises(Crash):
        delete_topic(dying_amid(made), "gone")
    standby = open_store("memory://standby")
    replicate(made, standby)
    assert check(standby).problems == []
    for number in count(1, 2):
        store = copied(standby)
        faulty = FaultyStore(store, [Fault(number, (crash_before, crash_after)[number // 2 % 2])])
        try:
            promote(faulty, ManualClock(seed=number))
        except Crash:
            if read_mark(store) is not None:
                promote(store, ManualClock(seed=1000 + number))
        assert check(store).problems == []
        cluster = Cluster.open(store, ManualClock(), create=False)
        assert [topic.name for topic in cluster.topics()] == ["c", "t"]
        if not faulty.dead:
            break
    assert number > 20
