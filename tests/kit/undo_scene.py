"""A root in which an operator undoes something, what works beside that, and what must hold whoever is faster.

Two topics, `t` and `u`, of one partition each. Both had eight records, of which the first two were deleted 25
hours ago, two more 13 hours ago, and one 12 hours ago. A vacuum has marked all their files but that of the
last; those of the first two are due. The two after them are beyond `retention.ms`, and the last one is not.
`u` was deleted with all that, a moment ago, and a third topic so long ago that a sweep takes it.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from jobs.maintenance import Maintenance, jobs_named
from jobs.outcome import JobOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import deletions, undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import Conflict, LakelogError, TopicExists
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.table.restore import look_back
from log_tables.table.vacuum import vacuum
from log_tables.testing import ClockedStore, Crash, Failure, Fault, FaultyStore
from tests.kit.copied import copied
from tests.kit.engines import always, no_engine
from tests.kit.partitions import append, values

HOUR_MS = 60 * 60 * 1000
LATE_MS = 25 * HOUR_MS
"""So long that what was deleted or marked goes."""

VALUES = [b"%d" % number for number in range(8)]
FIRST, DELETED = 2, 5
"""Where a restore lets the logs begin, and where they began before."""

TOPICS = ("t", "u")
FOR_EVER = {"retention.ms": "-1"}


class Made(NamedTuple):
    """The root as described above, its time, when the second deletion was, and the ids of the topics."""

    store: Store
    now_ms: int
    whole_ms: int
    ids: dict[str, str]


@cache
def made() -> Made:
    clock = ManualClock()
    store = ClockedStore(open_store("memory://"), clock)
    cluster = Cluster.open(store, clock, "http://maker")
    logs = [
        cluster.claim(create_topic(cluster, name, configs={"retention.ms": f"{HOUR_MS}"}), 0)
        for name in TOPICS
    ]
    create_topic(cluster, "old")
    delete_topic(cluster, "old")

    def give(*numbers: int) -> None:
        for log in logs:
            for number in numbers:
                append(log, VALUES[number], at_us=clock.now_us())

    def delete_below(offset: int, is_marked: bool = True) -> None:
        for log in logs:
            log.truncate(offset)
            if is_marked:
                vacuum(log.table)

    give(0, 1, 2, 3, 4)
    delete_below(FIRST)
    clock.advance(12 * HOUR_MS)
    whole_ms = clock.now_ms()
    clock.advance(1_000)
    delete_below(4)
    clock.advance(HOUR_MS)
    delete_below(DELETED, is_marked=False)
    clock.advance(10 * HOUR_MS)
    give(5, 6)
    clock.advance(2 * HOUR_MS)
    give(7)
    for name in TOPICS:
        fold(cluster.topic(name))
    ids = {name: cluster.topic(name).topic_id for name in TOPICS}
    delete_topic(cluster, "u")
    return Made(store, clock.now_ms(), whole_ms, ids)


def restore(world: "World", cluster: Cluster) -> None:
    alter_topic(cluster, "t", FOR_EVER)
    restore_topic(cluster.topic("t"), world.clock.now_ms(), wanted(None, world.whole_ms))


def make_again(world: "World", cluster: Cluster) -> None:
    """Delete both topics, as far as they are there, and make them again."""
    for name in TOPICS:
        with suppress(LakelogError):
            delete_topic(cluster, name)
        with suppress(TopicExists):
            append(cluster.claim(create_topic(cluster, name), 0), b"new")


def job(*names: str) -> Callable[["World", Cluster], None]:
    def act(world: "World", cluster: Cluster) -> None:
        world.outcomes += Maintenance(cluster, always(no_engine), jobs_named(names)).run()

    return act


ACTS: dict[str, Callable[["World", Cluster], object]] = {
    "restore": restore,
    "undelete": lambda _, cluster: undelete_topic(cluster, "u"),
    "undelete as v": lambda _, cluster: undelete_topic(cluster, "u", new_name="v"),
    "make again": make_again,
    "retention": job("retention"),
    "vacuum": job("housekeeping"),
}
UNDOES = ("restore", "undelete", "undelete as v")


class World:
    """A copy of that root, in which one act meets another, and what they have said."""

    def __init__(self, number: int) -> None:
        root = made()
        self.store, self.clock = copied(root.store, root.now_ms, 1 + number)
        self.ids, self.whole_ms = root.ids, root.whole_ms
        self.begun: list[str] = []
        self.done: list[str] = []
        self.refused: dict[str, LakelogError] = {}
        self.outcomes: list[JobOutcome] = []
        self.is_late = False

    def act(self, name: str, store: Store | None = None) -> None:
        """Let another process do the act `name`."""
        self.begun.append(name)
        try:
            ACTS[name](self, Cluster.open(store or self.store, self.clock, f"http://{name}"))
            self.done.append(name)
        except LakelogError as error:
            self.refused[name] = error
        except Crash:
            pass

    def meet(
        self,
        first: str,
        second: str,
        late: bool,
        fault: Callable[[Failure], Fault],
        meeting: Callable[[Callable[[], object]], Failure],
    ) -> bool:
        """Let `first` meet `second` at the call of a `fault`, a day later if that is `late`; returns whether
        it came so far.
        """
        met = False

        def step() -> None:
            nonlocal met
            met = True
            if late:
                self.is_late = True
                self.clock.advance(LATE_MS)
            self.act(second)

        self.act(first, FaultyStore(self.store, [fault(meeting(step))]))
        return met

    def look(self) -> None:
        """Assert that what was said holds, and all is there that is not deleted; that what was refused says
        why, and goes when it is repeated; and that no later vacuum takes a file that is needed.
        """
        cluster = Cluster.open(self.store, self.clock, "http://looker")
        self.act("vacuum")  # it finishes what died
        self.check(cluster)
        assert all(error.message for error in self.refused.values())
        live = {name: cluster.name_of(topic_id) for name, topic_id in self.ids.items()}
        if "make again" not in self.begun:
            assert live["t"] == "t"
            for act in {"undelete", "undelete as v"} & {*self.done}:
                assert live["u"] == ("u" if act == "undelete" else "v")
        for name in self.ids:
            self.finish(cluster, name)
        self.check(cluster)
        self.clock.advance(LATE_MS)
        whole, whole_ms = self.whole(cluster), self.clock.now_ms()
        self.clock.advance(1_000)
        for topic in whole:
            topic.partition(0).truncate(DELETED)
        self.act("vacuum")
        for topic in whole:
            self.restore(topic, whole_ms)  # no mark of before counts
        for _ in range(2):
            self.clock.advance(LATE_MS)
            self.act("vacuum")
        self.check(cluster)
        self.outcomes.clear()
        self.act("retention")
        self.act("vacuum")
        assert [each for each in self.outcomes if each.failed] == []

    def finish(self, cluster: Cluster, name: str) -> None:
        """Bring the topic that was `name` back, whole, and go on with it."""
        topic_id = self.ids[name]
        if cluster.name_of(topic_id) is None:
            gone = [each for each in deletions(cluster) if each.topic_id == topic_id]
            if not gone:
                assert self.is_late, f"{name} is lost"
                return
            undelete_topic(cluster, gone[0].name, topic_id, f"back-{name}")
        topic = alter_topic(cluster, str(cluster.name_of(topic_id)), FOR_EVER)
        log = topic.partition(0)
        log.refresh()
        if name == "t" and "restore" in self.done:
            assert log.log_start == FIRST, "what was restored is gone again"
        try:
            self.restore(topic, self.whole_ms)
        except Conflict:
            if not self.is_late:
                raise
        append(cluster.claim(topic, 0), b"on", at_us=self.clock.now_us())

    def whole(self, cluster: Cluster) -> list[Topic]:
        """The topics that have all again."""
        found = [topic for topic in cluster.topics() if topic.topic_id in self.ids.values()]
        return [topic for topic in found if topic.partition(0).log_start == FIRST]

    def restore(self, topic: Topic, whole_ms: int) -> None:
        """Let the log of a topic begin where it did at a time."""
        log = topic.partition(0)
        log.restore(look_back(log.table, wanted(None, whole_ms)))
        assert log.log_start == FIRST

    def check(self, cluster: Cluster) -> None:
        """Each topic has its records from its log start on, each file is there, and fsck finds nothing."""
        cluster.refresh()
        there = {item.path: item.size for item in self.store.list("topics/")}
        for topic in cluster.topics():
            log = cluster.with_current_topic(topic.name, lambda topic: topic.partition(0))
            log.refresh()
            for segment in log.snapshot.segments:
                assert there[f"{log.directory}/{segment.path}"] == segment.size
            found = [value for value in values(log) if value != b"on"]
            if topic.topic_id in self.ids.values():
                assert found == VALUES[log.log_start :]
            else:
                assert found in ([], [b"new"])
        assert check(self.store).problems == []
