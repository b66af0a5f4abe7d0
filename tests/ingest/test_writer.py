"""ingest/writer.py: leading partitions, and appending the parts of a request to them."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.buffer import Buffer
from ingest.settings import Settings
from ingest.writer import Acks, Appended, AppendOutcome, Writer
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import NotLeader, TopicDeleted, UnknownTopic
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.store.store import Store, open_store
from log_tables.table.commit import decode
from log_tables.testing import Fault, FaultyStore, HoldingStore, refused
from tests.kit.support import wait_until


def batch(*values: bytes) -> pa.RecordBatch:
    return input_batch([Record(value) for value in values], 0)


def run(root: Path | Store, scenario: Callable[[Cluster, Writer], Awaitable[None]]) -> None:
    """Run `scenario` with a cluster of one topic, "t", and a writer that lingers for nothing."""
    store = open_store(root) if isinstance(root, Path) else root

    async def main() -> None:
        clock = SystemClock()
        cluster = Cluster.open(store, clock, "http://here")
        create_topic(cluster, "t", partitions=2)
        writer = Writer(cluster, Settings(linger_ms=0), clock)
        await writer.start()
        await scenario(cluster, writer)
        await writer.close()

    asyncio.run(main())


async def append(
    writer: Writer, topic: Topic, *parts: tuple[int, bytes], acks: Acks = Acks.ALL
) -> list[AppendOutcome]:
    """Lead the partitions, and append."""
    for index, _ in parts:
        await writer.accumulator_for(topic, index)
    with Buffer(1 << 20).room(topic.name) as room:
        entries = [(partition, AppendRequest(batch(value))) for partition, value in parts]
        return await writer.append(topic, entries, acks, room)


def test_the_parts_of_a_request_are_answered_in_order(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (1, b"first"))
        outcomes = await append(writer, topic, (1, b"second"), (0, b"third"))
        assert outcomes == [Appended(1, 1, 1), Appended(0, 0, 1)]

    run(store_root, scenario)


def test_a_request_that_is_cancelled_does_not_fail_its_neighbours(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        log = (await writer.accumulator_for(topic, 0)).partition
        gone, other = (asyncio.create_task(append(writer, topic, (0, value))) for value in (b"a", b"b"))
        await asyncio.wait((gone, other), timeout=0)  # both begin
        assert log.log_end == 2
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert await other == [Appended(0, 1, 1)]
        assert len(log.snapshot.segments) == 1, "they waited for the same commit"

    run(store_root, scenario)


def test_a_topic_deleted_in_this_process_takes_no_more_records(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"before"))
        await asyncio.to_thread(delete_topic, cluster, "t")
        with pytest.raises(UnknownTopic):
            await append(writer, topic, (0, b"after"))

    run(store_root, scenario)


def test_a_topic_deleted_by_another_process_takes_no_more_records(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"before"))
        other = Cluster.open(open_store(store_root))
        await asyncio.to_thread(delete_topic, other, "t")
        [fenced] = await append(writer, topic, (0, b"after"))
        assert isinstance(fenced, TopicDeleted)
        with pytest.raises(UnknownTopic):
            await append(writer, topic, (0, b"after"))

    run(store_root, scenario)


def test_a_topic_that_was_deleted_is_led_and_kept_no_longer(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"old"))
        await writer.forget()
        assert writer.led_partitions() == [(topic, 0)]
        await asyncio.to_thread(delete_topic, Cluster.open(open_store(store_root)), "t")
        await asyncio.to_thread(cluster.refresh)
        await writer.forget()
        assert writer.led_partitions() == []
        kept = weakref.ref(topic)
        del topic
        gc.collect()
        assert kept() is None

    run(store_root, scenario)


def test_a_fenced_writer_claims_again_for_the_next_request(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"mine"))
        other = Cluster.open(open_store(store_root)).topic("t").partition(0)
        other.claim("http://there")
        other.append([AppendRequest(batch(b"theirs"))])
        [fenced] = await append(writer, topic, (0, b"void"))
        assert isinstance(fenced, NotLeader)
        assert await append(writer, topic, (0, b"mine again")) == [Appended(0, 2, 1)]

    run(store_root, scenario)


def test_records_answered_early_hold_their_room_until_they_are_durable(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic, buffer = cluster.topic("t"), Buffer(1_000)
        await writer.accumulator_for(topic, 0)
        with buffer.room("t") as room:
            room.grow(600)
            [outcome] = await writer.append(topic, [(0, AppendRequest(batch(b"early")))], Acks.LEADER, room)
        assert outcome == Appended(0, 0, 1)
        assert buffer.used == 600
        await writer.close()
        assert buffer.used == 0
        assert topic.partition(0).high_watermark == 1

    run(store_root, scenario)


def test_a_closed_writer_has_flushed_and_takes_nothing_more(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"not durable yet"), acks=Acks.LEADER)
        await writer.close()
        assert topic.partition(0).high_watermark == 1
        [refused] = await append(writer, topic, (0, b"late"))
        assert isinstance(refused, NotLeader)

    run(store_root, scenario)


def test_nothing_is_appended_to_a_partition_that_was_not_taken(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        with Buffer(1 << 20).room("t") as room:
            [refused] = await writer.append(topic, [(0, AppendRequest(batch(b"x")))], Acks.ALL, room)
        assert isinstance(refused, NotLeader)
        assert topic.partition(0).snapshot.leader_epoch == 0

    run(store_root, scenario)


def test_a_partition_that_is_released_is_committed_and_taken_again(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        await append(writer, topic, (0, b"not durable yet"), acks=Acks.LEADER)
        assert writer.led_partitions() == [(topic, 0)]
        await writer.release(topic, 0)
        assert topic.partition(0).high_watermark == 1
        assert not writer.leads(topic, 0)
        assert writer.led_partitions() == []
        assert await append(writer, topic, (0, b"again")) == [Appended(0, 1, 1)]

    run(store_root, scenario)


def test_what_comes_while_a_partition_is_released_is_not_lost_in_silence(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        accumulator = await writer.accumulator_for(topic, 0)
        releasing = asyncio.create_task(accumulator.release())
        await asyncio.wait({releasing})
        with pytest.raises(NotLeader):
            accumulator.add(AppendRequest(batch(b"late")))

    run(store_root, scenario)


def test_a_failure_with_a_partition_is_over_when_it_is_released(store_root: Path) -> None:
    """The next leader looks for itself."""

    async def scenario(cluster: Cluster, writer: Writer) -> None:
        accumulator = await writer.accumulator_for(cluster.topic("t"), 0)
        with accumulator.failures.catch("offers", accumulator.partition.directory):
            decode(b"no offer", "offer")
        assert len(accumulator.failures.failing) == 1
        await writer.release(cluster.topic("t"), 0)
        assert accumulator.failures.failing == {}

    run(store_root, scenario)


def test_a_claim_waits_for_the_release_before_it(store_root: Path) -> None:
    """Else the end of the old term would be that of the new one, and fail all that came in it."""
    store = HoldingStore(open_store(store_root), "partition=0/", {"put_if_absent"})

    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        log = (await writer.accumulator_for(topic, 0)).partition
        store.hold()
        first = asyncio.create_task(append(writer, topic, (0, b"a")))
        await asyncio.to_thread(wait_until, lambda: store.held == 1, "its commit is under way")
        releasing = asyncio.create_task(writer.release(topic, 0))
        await asyncio.to_thread(wait_until, lambda: not writer.leads(topic, 0), "it is being released")
        claiming = asyncio.create_task(writer.accumulator_for(topic, 0))
        await asyncio.wait((claiming,), timeout=0)
        store.let_go()
        accumulator = await claiming
        term = log.term
        await releasing
        assert accumulator.leading
        assert log.term == term
        assert await first == [Appended(0, 0, 1)]
        assert await append(writer, topic, (0, b"b")) == [Appended(0, 1, 1)]
        await asyncio.gather(writer.release(topic, 0), writer.release(topic, 0))
        assert writer.led_partitions() == []

    run(store, scenario)


def test_records_without_a_key_stay_among_the_partitions_that_are_named(store_root: Path) -> None:
    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic = cluster.topic("t")
        assert writer.sticky_partition(topic) == 0
        assert writer.sticky_partition(topic, [1]) == 1
        assert writer.sticky_partition(topic, [0]) == 0
        assert writer.sticky_partition(topic, []) == 0

    run(store_root, scenario)


def test_what_comes_after_a_refused_entry_is_refused_too(store_root: Path) -> None:
    """Two epochs in one call, while a copy of them is under way; that fails before they have been looked at.

    A later one in the log must say that the earlier ones are there.
    """
    failing, thread = threading.Event(), threading.Event()

    def refused_late(perform: Callable[[], object]) -> object:
        failing.wait()
        return refused(perform)

    def epochs() -> list[tuple[int, AppendRequest]]:
        return [(0, AppendRequest(batch(b"%d" % epoch), ProducerStamp(7, epoch, 0))) for epoch in (5, 6)]

    async def scenario(cluster: Cluster, writer: Writer) -> None:
        topic, buffer = cluster.topic("t"), Buffer(1 << 20)
        with buffer.room("t") as room, ThreadPoolExecutor(1) as pool:
            await writer.accumulator_for(topic, 0)
            copy = asyncio.create_task(writer.append(topic, epochs(), Acks.ALL, room))
            await asyncio.wait({copy}, timeout=0)
            asyncio.get_running_loop().set_default_executor(pool)
            pool.submit(thread.wait)  # whoever wants to look at the log has to wait for a thread
            again = asyncio.create_task(writer.append(topic, epochs(), Acks.ALL, room))
            await asyncio.wait({again}, timeout=0)
            failing.set()
            await copy
            await writer.accumulator_for(topic, 0)
            thread.set()
            outcomes = await again
        assert [type(outcome) for outcome in outcomes] == [NotLeader, NotLeader]
        assert topic.partition(0).high_watermark == 0

    run(
        FaultyStore(open_store(store_root), [Fault(1, refused_late, {"put_new"}, "topics/t/partition=0/")]),
        scenario,
    )
