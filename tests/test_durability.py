"""Every fsync of every put fails in turn: nothing that was acknowledged is lost with the power.

Each run is a scenario on a disk (tests/disk.py) of which the n-th fsync fails once, or fails from then on, or
is where the process dies and another one goes on. What somebody was told is looked for, from that moment on,
in what a power cut would leave.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import msgspec
import pytest

from log_tables import staging
from log_tables.clock import ManualClock
from log_tables.cluster import Cluster
from log_tables.errors import (
    AlreadyExists,
    InvalidArgument,
    OutcomeUnknown,
    Retriable,
    TopicExists,
    UnknownTopic,
)
from log_tables.layout import STAGING, VALUE
from log_tables.local_store import LocalStore
from log_tables.partition import Partition, Producer
from log_tables.record import Record, input_batch
from log_tables.remote import RemoteRoot
from log_tables.rewrite import commit_merge, merge
from log_tables.segment import SegmentCache
from log_tables.staging import Part, Staged
from log_tables.store import Store
from log_tables.sweep import sweep
from log_tables.table import Table, create_table
from log_tables.testing import Crash
from log_tables.tier import remove_expired
from log_tables.vacuum import vacuum
from tests.disk import Disk, Fails, Kept, death, from_then_on, once
from tests.partitions import TABLE, another, append, held
from tests.tiers import CLUSTER, move

HERE, AWAY = "here", "away"
LONG_AGO_S = 1_600_000_000


class Left:
    """What a power cut leaves of the two roots, as the next process finds it."""

    def __init__(self, world: "World", kept: Kept) -> None:
        self.here, self.away = world.disk.cut(HERE, kept), world.disk.cut(AWAY, kept)
        self._cache = world.cache

    def values(self) -> Mapping[int | None, bytes | None]:
        """What the partition TABLE holds, by offset."""
        return held(self.partition())

    def partition(self) -> Partition:
        clock = ManualClock()
        root = RemoteRoot("memory://", CLUSTER, clock, lambda: self.away)
        partition = Partition(self.here, TABLE, clock, cache=self._cache, remote=lambda: root)
        for segment in partition.log_from(partition.log_start).segments:
            store = self.away if segment.remote else self.here
            assert store.head(f"{TABLE}/{segment.path}").size == segment.size
        return partition

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster.open(self.here, ManualClock(), create=False)


Promise = Callable[[Left], None]


class World:
    """Two roots on one disk, and what those who work on them were told."""

    def __init__(self, root: Path, fails: Fails) -> None:
        self.disk = Disk(root, HERE, AWAY, fails=fails)
        self.clock, self.chance, self.cache = ManualClock(), ManualClock(seed=1), SegmentCache()
        self.asked_to_delete = 0
        self._values: dict[int, bytes] = {}
        self._promises: dict[str, Promise] = {}
        self._checked = False

    def stores(self) -> tuple[Store, Store]:
        """The two roots as a new process opens them."""
        sync = self.disk.process()
        here, away = (LocalStore(self.disk.root / name, self.clock, sync=sync) for name in (HERE, AWAY))
        return here, away

    def holds(self, offset: int, value: bytes) -> None:
        """Somebody was told that the partition TABLE has `value` at `offset`."""
        news = offset not in self._values
        self._values[offset] = value
        self._told(news)

    def told(self, what: str, promise: Promise) -> None:
        """Somebody was told `what`: from now on it holds, whatever becomes of the power."""
        news = what not in self._promises
        self._promises[what] = promise
        self._told(news)

    def was_told(self, what: str) -> bool:
        return what in self._promises

    def _told(self, news: bool) -> None:
        if self.disk.failed and (news or not self._checked):
            self._checked = True
            self.check(nothing)

    def check(self, *cuts: Kept) -> None:
        """A power cut now breaks no promise."""
        for kept in cuts:
            self._check(Left(self, kept))

    def _check(self, left: Left) -> None:
        if self._values:
            found = left.values()
            wanted = {at: value for at, value in self._values.items() if at >= self.asked_to_delete}
            assert {at: found.get(at) for at in wanted} == wanted
        for promise in self._promises.values():
            promise(left)

    def something(self, _: str) -> bool:
        """By chance, some of what was not fsynced is left."""
        return self.chance.random() < 0.5

    def age(self) -> None:
        """Let years pass for all files that are there."""
        for directory, _, names in os.walk(self.disk.root):
            for name in names:
                os.utime(os.path.join(directory, name), (LONG_AGO_S, LONG_AGO_S))


def nothing(_: str) -> bool:
    """Nothing is left of what was not fsynced."""
    return False


def everything(_: str) -> bool:
    """All is left that could be seen."""
    return True


class StillFailing(Exception):
    """It is of no use to go on."""


def again(step: Callable[[], object]) -> None:
    """Do `step` until that is acknowledged; a disk that fails for good is given up."""
    for _ in range(3):
        with suppress(Retriable, OutcomeUnknown):
            step()
            return
    raise StillFailing


def lead(world: World, store: Store) -> Partition:
    """The partition TABLE, made if need be, led by a new process."""

    def make() -> None:
        with suppress(AlreadyExists):
            create_table(store, TABLE, world.clock)

    again(make)
    partition = Partition(store, TABLE, world.clock)
    again(lambda: partition.claim("http://here"))
    return partition


def produce(world: World, partition: Partition, numbers: Iterable[int]) -> None:
    """Append records that are their own offsets, each by a commit, once."""
    for number in numbers:
        value = b"%d" % number

        def step(number: int = number, value: bytes = value) -> None:
            if not partition.leading:
                partition.claim("http://here")
            append(partition, value, producer=Producer(7, 0, number))

        again(step)
        world.holds(number, value)


def records_and_deletions(world: World, here: Store, _: Store) -> None:
    partition = lead(world, here)
    produce(world, partition, range(3))
    world.asked_to_delete = 2
    again(lambda: partition.truncate(2))

    world.told("deleted", _begins_at_two)
    produce(world, partition, range(3, 5))


def _begins_at_two(left: Left) -> None:
    assert left.partition().log_start >= 2


def log_cleanup(world: World, here: Store, _: Store) -> None:
    """By one who does not lead, behind checkpoints of which nobody repeats one that failed."""
    partition = lead(world, here)
    produce(world, partition, range(2))
    slow = another(partition)
    produce(world, partition, range(2, 4))
    for writer in (partition, slow):  # the last one sets the hint back
        with suppress(Retriable):
            writer.checkpoint()
    world.age()
    again(another(partition, world.stores()[0]).clean_log)
    world.check(nothing, *[world.something] * 5)
    produce(world, partition, range(4, 5))


def merge_and_vacuum(world: World, here: Store, _: Store) -> None:
    partition = lead(world, here)
    produce(world, partition, range(3))
    again(partial(merge_all, world, Table(here, TABLE, world.clock)))
    for _round in range(2):
        world.age()
        again(partial(vacuum, partition.table))
        world.check(nothing, world.something)
    produce(world, partition, range(3, 4))


def merge_all(world: World, table: Table) -> None:
    inputs = table.refresh(wait=True).segments
    if len(inputs) > 1:
        commit_merge(table, inputs, merge(table.store, TABLE, inputs, "lz4", world.clock))


def remote_tier(world: World, here: Store, away: Store) -> None:
    root = RemoteRoot("file:///away", CLUSTER, world.clock, lambda: away)
    again(root.mark)
    partition = lead(world, here)
    produce(world, partition, range(4))
    mover = Table(world.stores()[0], TABLE, world.clock)
    again(partial(move, mover, root, 2))
    world.check(nothing, world.something)
    world.asked_to_delete = 1
    again(partial(partition.truncate, 1))
    again(partial(expire, root, partition))
    for table in (partition.table, root.table(TABLE)):
        for _round in range(2):
            world.age()
            again(partial(vacuum, table))
    world.check(nothing, world.something)
    produce(world, partition, range(4, 5))


def expire(root: RemoteRoot, partition: Partition) -> None:
    remove_expired(root.table(TABLE), partition.log_start)


def topics(world: World, here: Store, _: Store) -> None:
    """By processes that go by what they find."""
    cluster = opened(world, here)
    for name in ("stays", "goes"):
        if name == "goes" and world.asked_to_delete:
            continue
        if cluster.known(name) is None:
            again(partial(create, cluster, name))
            world.told(f"{name} is made", _whole(name, 1, []))
        if cluster.topic(name).partition_count < 2:
            again(partial(cluster.add_partitions, name, 2))
            world.told(f"{name} has grown", _whole(name, 2, []))
        if not world.was_told(f"{name} has a record"):
            again(partial(say, cluster, name))
            world.told(f"{name} has a record", _whole(name, 2, [name.encode()]))
    world.asked_to_delete = 1
    if cluster.known("goes") is not None:
        again(partial(delete, cluster))
        world.told("goes is gone", _gone)
    for delay_ms in (120_000, 7_200_000):  # the segments go first, the log an hour later
        world.clock.advance(delay_ms)
        again(partial(sweep, cluster))
        world.check(nothing, *[world.something] * 3)


def opened(world: World, store: Store) -> Cluster:
    found: list[Cluster] = []
    again(lambda: found.append(Cluster.open(store, world.clock)))
    return found[0]


def create(cluster: Cluster, name: str) -> None:
    with suppress(TopicExists):
        cluster.create_topic(name)


def say(cluster: Cluster, name: str) -> None:
    append(cluster.lead(cluster.topic(name), 1), name.encode(), producer=Producer(7, 0, 0))


def delete(cluster: Cluster) -> None:
    with suppress(UnknownTopic):
        cluster.delete_topic("goes")


def _whole(name: str, partitions: int, values: list[bytes]) -> Promise:
    """The topic, unless somebody wanted it gone, is there, and these records with it."""

    def promise(left: Left) -> None:
        topic = left.cluster.known(name)
        assert topic is not None or name == "goes"
        if topic is not None:
            assert topic.partition_count >= partitions
            assert set(values) <= set(held(topic.partition(partitions - 1)).values())

    return promise


def _gone(left: Left) -> None:
    assert left.cluster.known("goes") is None


def staged_files(world: World, here: Store, _: Store) -> None:
    """What is named in a record is there until another record says that it is done with."""
    partition = lead(world, here)
    produce(world, partition, range(1))
    parts = [Part("t", "id", 0, [input_batch([Record(b"staged")], 0)])]
    staged = staging.stage(open_copy(world), world.clock, "g", parts)

    def stage() -> None:
        """As a client does that goes by what it sees."""
        try:
            named = staging.stage(here, world.clock, "g", parts)
        except Retriable:
            found = [item.path for item in here.list(f"{STAGING}/")]
            if not found:
                raise
            named = Staged(found[-1], staged.runs)
        with suppress(InvalidArgument):
            staging.check(here, "g", [named])
            intent = msgspec.json.encode(named)
            if not partition.leading:
                partition.claim("http://here")
            append(partition, intent)

    again(stage)
    world.told("named", _readable)
    world.age()
    partition.refresh(wait=True)
    partition.table.make_durable()
    named = {msgspec.json.decode(value, type=Staged).path for value in _intents(partition)}
    again(lambda: staging.vacuum(here, named))
    again(stage)
    world.told("named again", _readable)


def open_copy(world: World) -> Store:
    """A place for what is not looked at."""
    return LocalStore(world.disk.root, ManualClock(seed=9), sync=lambda _: None)


def _intents(partition: Partition) -> Iterator[bytes]:
    return (value for value in held(partition).values() if value is not None and value.startswith(b"{"))


def _readable(left: Left) -> None:
    for intent in _intents(left.partition()):
        staged = msgspec.json.decode(intent, type=Staged)
        read = staging.read_run(left.here, staged, staged.runs[0])
        assert [value for batch in read for value in batch.column(VALUE).to_pylist()] == [b"staged"]


Scenario = Callable[[World, Store, Store], None]
SCENARIOS: list[Scenario] = [
    records_and_deletions,
    log_cleanup,
    merge_and_vacuum,
    remote_tier,
    topics,
    staged_files,
]


def lived(root: Path, scenario: Scenario, fails: Fails) -> int:
    """Live through `scenario` and the fault; returns how many fsyncs that took.

    Where a process dies, another one begins at the beginning.
    """
    world = World(root, fails)
    try:
        try:
            scenario(world, *world.stores())
        except Crash:
            scenario(world, *world.stores())
        except StillFailing:
            pass
        world.check(nothing, everything, world.something)
    finally:
        world.disk.close()
    return world.disk.syncs


@pytest.mark.parametrize("failure", [once, from_then_on, death], ids=lambda failure: failure.__name__)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_whichever_fsync_fails_what_was_acknowledged_survives_a_power_cut(
    tmp_path: Path, scenario: Scenario, failure: Callable[[int], Fails]
) -> None:
    for number in range(1, 1 + lived(tmp_path / "0", scenario, lambda _: None)):
        try:
            lived(tmp_path / str(number), scenario, failure(number))
        except BaseException as error:
            error.add_note(f"fsync {number}")
            raise
