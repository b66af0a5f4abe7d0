"""The coordinator of transactional ids, in a whole gateway: what it refuses and forgets, and after damage."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.groups.classic.events import CommitOffsets, PendOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.open_transactions import GROUPS_MAX
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    Admit,
    Batch,
    EndTransaction,
    InitProducer,
    Outcomes,
    Producer,
    Staged,
)
from log_tables.clock import ManualClock
from log_tables.errors import BufferFull, ConcurrentTransactions, InvalidTransactionState, UnknownProducer
from log_tables.root.copy import copy_root
from log_tables.segments.producer_staging import ProducerFile, ProducerRecords
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash
from log_tables.topic_partition import TopicIdPartition, TopicPartition
from tests.kit.disk import Disk, death
from tests.kit.kafka_served import kafka_served
from tests.kit.loop_holds import HELD_MAX_S, Hold, loop_holds, shortest
from tests.kit.producers_world import IN, Node, World, make_topics, values_batch

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.end()


class Client:
    """A producer of transaction version 2."""

    def __init__(self, world: World, name: str, principal: str = "") -> None:
        self.world, self.name, self.sequence = world, name, 0
        begun = self.ask(InitProducer(name, 60_000, -1, -1, principal))
        assert isinstance(begun, Producer)
        self.begun = begun

    @property
    def place(self) -> tuple[str, int, int]:
        return self.name, self.begun.producer_id, self.begun.epoch

    def ask(self, request: object) -> object:
        node = self.world.nodes[-1]
        return self.world.finish(node.ask(request), node)  # type: ignore[arg-type]

    def admit(self) -> object:
        answer = self.ask(Admit((Batch(*self.place, self.sequence, self.world.at(0), True),)))
        assert isinstance(answer, Outcomes)
        (number,) = answer.each
        return number if isinstance(number, int) else number.error()

    def write(self, value: bytes) -> ProducerFile:
        number = self.admit()
        assert isinstance(number, int)
        entry = ProducerRecords(*self.place, number, self.sequence, self.world.at(0), values_batch([value]))
        file = self.world.stage([entry])
        assert self.ask(Staged(file)) == Outcomes((0,))
        self.sequence += 1
        return file

    def end(self, commits: bool = True) -> object:
        answer = self.ask(EndTransaction(*self.place, commits, True))
        if isinstance(answer, Producer):
            self.begun, self.sequence = answer, 0
        return answer


def taken_over(world: World) -> None:
    world.nodes.pop().die()
    world.nodes.append(Node(world))


def bounded(world: World, **settings: int) -> None:
    world.nodes.pop().die()
    world.nodes.append(Node(world, **settings))


def test_a_damaged_file_aborts_what_was_open_and_nothing_that_comes_after(world: World) -> None:
    first, second = Client(world, "x"), Client(world, "y")
    first.write(b"a")
    file = second.write(b"b")
    world.store.put(file.path, b"garbage")
    taken_over(world)
    assert isinstance(first.end(), InvalidTransactionState)
    assert isinstance(second.end(), InvalidTransactionState)
    first.end(commits=False)
    first.write(b"c")
    assert isinstance(first.end(), Producer)
    second.end(commits=False)
    assert world.written(0) == [b"c"]


def test_what_a_dead_gateway_left_visible_is_durable_before_it_counts(tmp_path: Path) -> None:
    """It dies amid the fsync of the directory, the next one finds the file, and then the power fails."""
    disk = Disk(tmp_path, "root")

    def opened() -> Store:
        return LocalStore(tmp_path / "root", ManualClock(seed=5), sync=disk.process())

    make_topics(opened(), ManualClock(seed=4))
    world = World(copy=opened())
    try:
        world.begin()
        client = Client(world, "x")
        disk.fails = death(disk.syncs + 2)
        with pytest.raises(Crash):
            client.write(b"a")
        world.nodes.pop().die()
        world.come_to(opened())
        world.nodes.append(Node(world))
        assert client.admit() == 0
        assert len([*disk.cut("root").list("staging/")]) == 1
    finally:
        world.end()
        disk.close()


def pend(client: "Client", number: int, offset: int) -> None:
    """Have an offset of the group `g` wait for the end of a transaction."""
    node = client.world.nodes[-1]
    event = PendOffsets(client.name, client.begun.producer_id, number, place_of(offset))
    assert client.world.finish(node.begin(node.gateway.classic.pend("g", event)), node) is True


def place_of(offset: int) -> CommitOffsets:
    return CommitOffsets(offsets={TopicPartition(IN, 0): OffsetAndMetadata(offset)}, at_ms=1)


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_the_newest_offset_of_a_partition_is_kept(world: World, is_taken_over: bool) -> None:
    """Not the one whose transaction ends last, as in Kafka."""
    first, second = Client(world, "x"), Client(world, "y")
    for number, offset in ((1, 3), (2, 20)):
        for client in (first, second):
            client.ask(AddOffsets(*client.place, "g", opens=True))
        pend(first, number, offset)
        pend(second, number, offset + 1)
        second.end()
        if number == 1:
            assert world.offsets() == {"g": 4}
            node = world.nodes[-1]
            world.finish(node.begin(node.gateway.classic.commit("g", place_of(10))), node)
        if is_taken_over:
            taken_over(world)
        first.end()
        assert world.offsets() == {"g": 10 if number == 1 else 21}


def test_an_offset_that_comes_late_is_not_committed_by_the_next_coordinator(world: World) -> None:
    """Its transaction has committed a newer one."""
    client = Client(world, "x")
    client.ask(AddOffsets(*client.place, "g", opens=True))
    pend(client, 1, 1)
    pend(client, 1, 2)
    client.end()
    pend(client, 1, 1)
    taken_over(world)
    assert isinstance(client.admit(), ConcurrentTransactions)  # the group is told once more
    world.nodes[-1].go_on(1_000)
    client.write(b"a")
    client.end()
    assert world.offsets() == {"g": 2}


def test_a_group_that_was_added_is_in_the_transaction_after_a_change_of_the_coordinator(world: World) -> None:
    client = Client(world, "x")
    client.ask(AddOffsets(*client.place, "g", opens=True))
    taken_over(world)
    answer = client.ask(AddOffsets(*client.place, "g", opens=False))
    assert isinstance(answer, Producer)
    assert answer.number == 1
    assert isinstance(client.ask(AddOffsets(*client.place, "other", opens=False)), InvalidTransactionState)
    client.end()
    assert isinstance(client.ask(AddOffsets(*client.place, "g", opens=False)), InvalidTransactionState)


def test_open_transactions_have_so_many_bytes_together(world: World) -> None:
    bounded(world, transactions_max_bytes=1)
    first, second = Client(world, "x"), Client(world, "y")
    first.write(b"a")
    assert isinstance(second.admit(), BufferFull)
    first.end()
    second.write(b"b")
    second.end()
    assert world.written(0) == [b"a", b"b"]


def test_a_principal_has_so_many_bytes_in_open_transactions(world: World) -> None:
    bounded(world, principal_transactions_max_bytes=1)
    first, second, other = (
        Client(world, name, f"User:{who}") for name, who in (("x", "ann"), ("y", "ann"), ("z", "bob"))
    )
    first.write(b"a")
    assert isinstance(second.admit(), BufferFull)
    assert isinstance(other.admit(), int)
    first.end(commits=False)
    second.write(b"b")


def test_the_bytes_of_open_transactions_are_known_to_the_next_coordinator(world: World) -> None:
    bounded(world, transactions_max_bytes=1)
    first, second = Client(world, "x"), Client(world, "y")
    first.write(b"a")
    bounded(world, transactions_max_bytes=1)
    assert isinstance(second.admit(), BufferFull)


def test_ids_that_nobody_uses_are_forgotten_and_leave_nothing(world: World) -> None:
    bounded(world, transactional_id_expiration_ms=HOUR_MS)
    idle = Client(world, "idle")
    clients = [Client(world, f"x{number}") for number in range(3)]
    world.advance(HOUR_MS // 2)
    used = clients[0]
    used.write(b"a")
    used.end()
    world.advance(HOUR_MS // 2 + 120_000)
    node = world.nodes[-1]
    node.go_on(1_000)
    assert isinstance(idle.admit(), UnknownProducer)
    used.write(b"b")
    assert [*next(iter(node.gateway.shard_manager.shards)).producers] == ["x0"]
    taken_over(world)
    used.end()
    assert [*next(iter(world.nodes[-1].gateway.shard_manager.shards)).producers] == ["x0"]
    assert world.written(0) == [b"a", b"b"]


def test_a_copy_has_what_is_committed_and_nothing_that_is_open(world: World, tmp_path: Path) -> None:
    first, second = Client(world, "x"), Client(world, "y")
    first.write(b"a")
    first.end()
    second.write(b"b")
    world.advance(500)  # it is marked as applied
    world.nodes[-1].go_on(100)
    target = World(open_store(tmp_path))
    try:
        copy_root(world.store, target.store, world.clock)
        target.begin()
        assert target.written(0) == [b"a"]
        assert [*target.store.list("staging/")] == []
        there = Client(target, "x")
        there.write(b"c")
        there.end()
        assert target.written(0) == [b"a", b"c"]
    finally:
        target.end()


def test_a_group_that_is_slow_to_hear_of_ends_holds_up_no_time_out(world: World) -> None:
    """It waits for the end of a transaction of an id that nobody knows. The threads of its gateway hang."""
    Client(world, "x").write(b"a")
    node, at = world.nodes[-1], TopicPartition(IN, 0)
    commit = CommitOffsets(offsets={at: OffsetAndMetadata(1)}, at_ms=1)
    world.finish(node.begin(node.gateway.classic.pend("g", PendOffsets("y", 0, 1, commit))), node)
    shard = node.gateway.shard_manager.shards.get(0)
    assert shard is not None
    assert shard.open.find("x") is not None
    for _ in range(140):
        world.advance(500)
    assert shard.unstable == {"g"}
    assert shard.open.find("x") is None


def test_an_id_keeps_so_many_groups(tmp_path: Path) -> None:
    async def fill() -> None:
        coordinator = served.gateway.producers
        held = await coordinator.begin(InitProducer("x", 60_000, -1, -1, ""))
        place = "x", held.producer_id, held.epoch

        async def add(number: int) -> None:
            await coordinator.add_offsets(AddOffsets(*place, f"g{number}", True))

        await asyncio.gather(*map(add, range(GROUPS_MAX)))
        with pytest.raises(InvalidTransactionState):
            await add(GROUPS_MAX)
        await add(0)  # it is there already
        await coordinator.end(EndTransaction(*place, False, False))
        await add(GROUPS_MAX)
        (shard,) = served.gateway.shard_manager.shards
        assert shard.producers["x"].groups == (f"g{GROUPS_MAX}",)

    with kafka_served(tmp_path, offsets_topic_num_partitions=1) as served:
        asyncio.run_coroutine_threadsafe(fill(), served.loop).result()


def test_very_many_principals_make_no_batch_slow(tmp_path: Path) -> None:
    def admitted() -> Hold:
        holds.take()
        coordinator = served.gateway.producers
        asked = coordinator.ask(0, Admit((Batch("x", *place, 0, at, True),) * 200))
        assert asyncio.run_coroutine_threadsafe(asked, served.loop).result() == Outcomes((1,) * 200)
        return holds.take()

    with kafka_served(tmp_path, offsets_topic_num_partitions=1) as served, loop_holds(served.loop) as holds:
        begin = served.gateway.producers.begin(InitProducer("x", 60_000, -1, -1, ""))
        begun = asyncio.run_coroutine_threadsafe(begin, served.loop).result()
        place, at = (begun.producer_id, begun.epoch), TopicIdPartition("t", "id-t", 0)
        (shard,) = served.gateway.shard_manager.shards
        shard.open.sizes.update({f"User:{number}": 1 for number in range(5_000)})
        assert shortest(admitted)[0] < HELD_MAX_S
