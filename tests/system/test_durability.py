"""Every fsync of every put fails in turn: nothing that was acknowledged is lost with the power.

Each run is a scenario on a disk (tests/kit/disk.py) of which the n-th fsync fails once, or fails from then
on, or is where the process dies and another one goes on. What somebody was told is looked for, from that
moment on, in what a power cut would leave; in the long form after every fsync. What one process left and
another one goes by is in tests/system/test_visible.py.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import (
    AlreadyExists,
    InvalidArgument,
    OutcomeUnknown,
    Retriable,
    TopicExists,
    UnknownTopic,
)
from log_tables.layout import STAGING, VALUE
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import remove_expired
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from log_tables.table.table import Table, create_table
from log_tables.table.vacuum import vacuum
from log_tables.testing import Crash
from tests.kit.disk import Fails, death, from_then_on, once
from tests.kit.partitions import TABLE, another, append, held
from tests.kit.power import Left, Promise, StillFailing, World, again, everything, nothing
from tests.kit.tiers import CLUSTER, move


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
            append(partition, value, producer=ProducerStamp(7, 0, number))

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
    """Clean the log by a process that does not lead, behind checkpoints that are not repeated after a
    failure.
    """
    partition = lead(world, here)
    produce(world, partition, range(2))
    slow = another(partition)
    produce(world, partition, range(2, 4))
    for writer in (partition, slow):  # the last one sets the hint back
        with suppress(Retriable, OutcomeUnknown):
            writer.checkpoint()
    world.age()
    again(another(partition, world.stores()[0]).table.delete_expired_log)
    world.check(nothing, *[world.something] * 2)
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
    """Create and delete topics, each step by what the process finds."""
    cluster = opened(world, here)
    for name in ("stays", "goes"):
        if name == "goes" and world.asked_to_delete:
            continue
        if cluster.cached_topic(name) is None:
            again(partial(create, cluster, name))
            world.told(f"{name} is made", _whole(name, 1, []))
        if cluster.topic(name).partition_count < 2:
            again(partial(add_partitions, cluster, name, 2))
            world.told(f"{name} has grown", _whole(name, 2, []))
        if not world.was_told(f"{name} has a record"):
            again(partial(say, cluster, name))
            world.told(f"{name} has a record", _whole(name, 2, [name.encode()]))
    world.asked_to_delete = 1
    if cluster.cached_topic("goes") is not None:
        again(partial(delete, cluster))
        world.told("goes is gone", _gone)
    for delay_ms in (120_000, 7_200_000):  # the segments go first, the log an hour later
        world.clock.advance(delay_ms)
        again(partial(sweep, cluster))
        world.check(nothing, world.something)


def opened(world: World, store: Store) -> Cluster:
    found: list[Cluster] = []
    again(lambda: found.append(Cluster.open(store, world.clock)))
    return found[0]


def create(cluster: Cluster, name: str) -> None:
    with suppress(TopicExists):
        create_topic(cluster, name)


def say(cluster: Cluster, name: str) -> None:
    append(cluster.claim(cluster.topic(name), 1), name.encode(), producer=ProducerStamp(7, 0, 0))


def delete(cluster: Cluster) -> None:
    with suppress(UnknownTopic):
        delete_topic(cluster, "goes")


def _whole(name: str, partitions: int, values: list[bytes]) -> Promise:
    """The topic, unless somebody wanted it gone, is there, and these records with it."""

    def promise(left: Left) -> None:
        topic = left.cluster.cached_topic(name)
        assert topic is not None or name == "goes"
        if topic is not None:
            assert topic.partition_count >= partitions
            assert set(values) <= set(held(topic.partition(partitions - 1)).values())

    return promise


def _gone(left: Left) -> None:
    assert left.cluster.cached_topic("goes") is None


def staged_files(world: World, here: Store, _: Store) -> None:
    """A staged file that a record names must exist until another record says that it is done with."""
    partition = lead(world, here)
    produce(world, partition, range(1))
    parts = [PartitionRecords("t", "id", 0, [input_batch([Record(b"staged")], 0)])]
    staged = staging.stage(open_copy(world), world.clock, "g", parts)

    def stage() -> None:
        """Stage records and name the file, as a client does that trusts what it sees."""
        try:
            named = staging.stage(here, world.clock, "g", parts)
        except (Retriable, OutcomeUnknown):
            found = [item.path for item in here.list(f"{STAGING}/")]
            if not found:
                raise
            named = StagedFile(found[-1], staged.runs)
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
    named = {msgspec.json.decode(value, type=StagedFile).path for value in _intents(partition)}
    unnamed = [file.path for file in staging.old_files(here) if file.path not in named]
    again(lambda: here.delete_objects(unnamed))
    again(stage)
    world.told("named again", _readable)


def open_copy(world: World) -> Store:
    """A place for what is not looked at."""
    return LocalStore(world.disk.root, ManualClock(seed=9), sync=lambda _: None)


def _intents(partition: Partition) -> Iterator[bytes]:
    return (value for value in held(partition).values() if value is not None and value.startswith(b"{"))


def _readable(left: Left) -> None:
    for intent in _intents(left.partition()):
        staged = msgspec.json.decode(intent, type=StagedFile)
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


def lived(
    root: Path, scenario: Scenario, fails: Fails, *, watched: bool = False, ordered: bool = False
) -> bool:
    """Live through `scenario` and the fault; returns whether it came to that.

    Where a process dies, another one begins at the beginning. `ordered` is a disk that keeps order, which the
    processes rely on.
    """
    world = World(root, fails, watched=watched, ordered=ordered)
    try:
        try:
            scenario(world, *world.stores())
        except Crash:
            scenario(world, *world.stores())
        except StillFailing:
            pass
        world.check(nothing, everything, world.something)
    except BaseException as error:
        error.add_note(root.name)
        raise
    finally:
        world.disk.close()
    return world.disk.failed


Failure = Callable[[int], Fails]
FAILURES: list[Failure] = [once, death, from_then_on]
ways = pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
scenarios = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


@scenarios
def test_whichever_fsync_fails_what_was_acknowledged_survives_a_power_cut(
    tmp_path: Path, scenario: Scenario
) -> None:
    """Each fsync fails in one of the ways, by turns."""
    for number in count(1):
        failure = FAILURES[number % len(FAILURES)]
        if not lived(tmp_path / f"fsync-{number}-{failure.__name__}", scenario, failure(number)):
            assert number > len(FAILURES)
            return


@ways
def test_where_segment_and_commit_are_fsynced_at_once_it_survives_as_well(
    tmp_path: Path, failure: Failure
) -> None:
    for number in count(1):
        root = tmp_path / f"fsync-{number}"
        if not lived(root, records_and_deletions, failure(number), watched=True, ordered=True):
            assert number > len(FAILURES)
            return


@pytest.mark.torture
@pytest.mark.parametrize("ordered", [False, True], ids=["strict", "ordered"])
@ways
@scenarios
def test_however_it_fails_and_whenever_the_power_is_cut(
    tmp_path: Path, scenario: Scenario, failure: Failure, ordered: bool
) -> None:
    """Each fsync fails in each way, and the power is cut after every one that follows."""
    for number in count(1):
        root = tmp_path / f"fsync-{number}"
        if not lived(root, scenario, failure(number), watched=True, ordered=ordered):
            return
