"""ingest/merge_debt.py: what is counted and when, whose commits gather longer, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ingest.buffer import Buffer
from ingest.commit_budget import GATHER_MAX_S
from ingest.merge_debt import RECOUNT_S, MergeDebt
from ingest.settings import Settings
from ingest.writer import Acks, Appended, Writer
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import BufferFull
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import open_store
from tests.kit.clocked_loop import ClockedLoop
from tests.kit.maintenance import run as run_jobs
from tests.kit.partitions import append

INTERNAL = "__lakelog_internal"
YOUNG = {"merge.min.age.ms": "0"}


def led(cluster: Cluster, name: str, files: int, internal: bool = False) -> Partition:
    """The one partition of a new topic, led here, with so many files of one record."""
    topic = create_topic(cluster, name, 1, YOUNG, internal=internal)
    partition = cluster.claim(topic, 0)
    for _ in range(files):
        append(partition, b"x")
    return partition


@pytest.fixture
def cluster(clock: ManualClock, tmp_path: Path) -> Cluster:
    return Cluster.open(open_store(tmp_path), clock, "http://here")


def counted(cluster: Cluster, **settings: object) -> MergeDebt:
    debt = MergeDebt(Settings.model_validate(settings), cluster.clock)
    cluster.clock.pause(1)  # times of appends run ahead of a clock that stands still
    debt.count(cluster)
    return debt


def test_what_merges_would_remove_is_counted_of_topics_that_are_led_here(cluster: Cluster) -> None:
    many, few = led(cluster, "many", 9), led(cluster, "few", 3)
    inside, lost = led(cluster, INTERNAL, 9, internal=True), led(cluster, "lost", 9)
    lost.resign()
    debt = counted(cluster)
    assert [debt.of(each.directory) for each in (many, few, inside, lost)] == [8, 0, 0, 0]
    assert {(each.topic, each.partition, each.files) for each in debt.found} == {
        ("many", 0, 8),
        ("few", 0, 0),
    }


def test_a_merge_pays_the_debt(cluster: Cluster, clock: ManualClock) -> None:
    partition = led(cluster, "t", 9)
    debt = counted(cluster, unmerged_segments_urgent=8)
    run_jobs(Cluster.open(cluster.store, cluster.clock, create=False))
    debt.count(cluster)
    assert debt.of(partition.directory) == 8, "it is looked for again after a while"
    clock.advance(int(RECOUNT_S * 1000))
    debt.count(cluster)
    assert debt.of(partition.directory) == 0


def test_a_partition_is_let_in_again_by_the_merge_of_a_few_files(cluster: Cluster) -> None:
    partition = led(cluster, "t", 33)
    debt = counted(cluster, unmerged_segments_max=32)
    assert debt.refuses
    inputs = partition.snapshot.segments[:2]
    made = merge(cluster.store, partition.directory, inputs, "zstd", cluster.clock)
    assert commit_merge(Partition(cluster.store, partition.directory, cluster.clock).table, inputs, made)
    debt.count(cluster)
    assert debt.of(partition.directory) == 31
    assert not debt.refuses


def test_a_debt_is_counted_when_its_files_are_old_enough_though_nothing_comes(
    cluster: Cluster, clock: ManualClock
) -> None:
    partition = cluster.claim(create_topic(cluster, "t", 1, {"merge.min.age.ms": "40000"}), 0)
    for _ in range(9):
        append(partition, b"x")
    debt = counted(cluster)
    assert debt.of(partition.directory) == 0
    clock.advance(40_000)
    debt.count(cluster)
    assert debt.of(partition.directory) == 8


def test_it_is_counted_again_when_the_settings_of_merges_have_changed(cluster: Cluster) -> None:
    partition = led(cluster, "t", 9)
    debt = counted(cluster, unmerged_segments_max=8)
    assert debt.refuses
    alter_topic(cluster, "t", {"segment.bytes": "1024"})
    debt.count(cluster)
    assert debt.of(partition.directory) < 8
    debt.check(partition)
    alter_topic(cluster, "t", {"segment.bytes": "1073741824"})
    debt.count(cluster)
    assert debt.of(partition.directory) == 8


def test_a_table_that_hardly_changes_is_counted_again_after_a_while(
    cluster: Cluster, clock: ManualClock
) -> None:
    partition = led(cluster, "t", 32)
    debt = counted(cluster)
    append(partition, b"x")
    debt.count(cluster)
    assert debt.of(partition.directory) == 31
    clock.advance(int(RECOUNT_S * 1000))
    debt.count(cluster)
    assert debt.of(partition.directory) == 32
    for _ in range(5):
        append(partition, b"x")
    clock.advance(1_000)
    debt.count(cluster)
    assert debt.of(partition.directory) == 37


def test_twice_the_debt_is_twice_the_pause_up_to_a_bound(cluster: Cluster, clock: ManualClock) -> None:
    partition = led(cluster, "t", 33)

    def pause_s(gather: int, **settings: object) -> float:
        debt = counted(cluster, unmerged_segments_gather=gather, **settings)
        now_s = clock.monotonic()
        first_s = debt.pause_s(partition, now_s)
        second_s = debt.pause_s(partition, now_s + first_s) - first_s
        assert 0 <= first_s <= second_s + 1e-9
        return second_s

    assert pause_s(0) == pause_s(33) == 0
    assert [pause_s(gather) for gather in (32, 16, 8)] == pytest.approx([0.04, 0.08, 0.16])
    assert pause_s(1) == pytest.approx(GATHER_MAX_S)
    assert pause_s(32, commits_per_second_max=10) == pytest.approx(0.2)
    assert pause_s(32, commits_per_second_max=0) == pytest.approx(0.04)


def test_who_has_been_idle_does_not_pause(cluster: Cluster, clock: ManualClock) -> None:
    partition = led(cluster, "t", 9)
    debt = counted(cluster, unmerged_segments_gather=1)
    assert debt.pause_s(partition, clock.monotonic() - 2 * GATHER_MAX_S) <= 0


def test_the_log_names_a_partition_in_debt_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    led(cluster, "t", 9)
    debt = counted(cluster, unmerged_segments_gather=8)
    debt.count(cluster)
    said = "partition 0 of topic 't' has 8 unmerged segments, and commits gather longer there from 8 on"
    assert [said in record.message for record in caplog.records] == [True]


# In a writer.


def entry(producer: ProducerStamp | None = None) -> AppendRequest:
    return AppendRequest(input_batch([Record(b"x")], 0), producer)


OF_TRANSACTION = entry(ProducerStamp(KEPT_PRODUCER_ID_MIN, 0, 0, kept=True))


def write(scenario: Callable[[Cluster, Writer, Partition], Awaitable[None]], **settings: object) -> None:
    """Run `scenario` with a writer that leads a partition of ten files, on a clock that stands still."""
    clock = ManualClock()

    async def main(directory: str) -> None:
        cluster = Cluster.open(open_store(directory), clock, "http://here")
        named = {"linger_ms": 0, "commits_cores_max": 0, **settings}
        writer = Writer(cluster, Settings.model_validate(named), clock)
        await writer.start()
        topics = [create_topic(cluster, "t", 1, YOUNG), create_topic(cluster, "free")]
        topics.append(create_topic(cluster, INTERNAL, 1, YOUNG, internal=True))
        for topic in topics:
            await writer.accumulator_for(topic, 0)
        partition = cluster.topic("t").partition(0)
        for _ in range(10):
            await appended(writer, cluster, "t")
            await appended(writer, cluster, INTERNAL)
        clock.advance(1_000)
        writer.debt.count(cluster)
        await scenario(cluster, writer, partition)
        await writer.close()

    with TemporaryDirectory() as directory, closing(ClockedLoop(clock)) as loop:
        loop.run_until_complete(main(directory))  # a directory, as the jobs open the store again


async def appended(
    writer: Writer, cluster: Cluster, topic: str, request: AppendRequest | None = None
) -> object:
    with Buffer(1 << 20).room(topic) as room:
        [outcome] = await writer.append(cluster.topic(topic), [(0, request or entry())], Acks.ALL, room)
        return outcome


def test_a_partition_with_too_many_files_takes_no_more() -> None:
    async def scenario(cluster: Cluster, writer: Writer, partition: Partition) -> None:
        topic = cluster.topic("t")
        said = (
            "partition 0 of topic 't' has 9 unmerged segments, and unmerged_segments_max is 9; "
            "run `lakelog maintain`, then repeat the request"
        )
        with pytest.raises(BufferFull, match=said) as raised:
            writer.check_budget(topic, [(0, entry())])
        assert raised.value.details == {"retry_after_s": 1}
        with pytest.raises(BufferFull, match=said):
            writer.sequence_now(topic, 0, entry())
        with pytest.raises(BufferFull, match=said):
            await writer.sequence(topic, 0, entry())
        writer.check_budget(topic, [(0, OF_TRANSACTION)])
        for free in ("free", INTERNAL):
            writer.check_budget(cluster.topic(free), [(0, entry())])
        run_jobs(Cluster.open(cluster.store, cluster.clock, create=False))
        writer.debt.count(cluster)  # nobody else reads that it was merged
        writer.check_budget(topic, [(0, entry())])

    write(scenario, unmerged_segments_max=9)


@pytest.mark.parametrize("bound", [0, 10])
def test_it_takes_more_below_the_bound_and_without_one(bound: int) -> None:
    async def scenario(cluster: Cluster, writer: Writer, partition: Partition) -> None:
        writer.check_budget(cluster.topic("t"), [(0, entry())])

    write(scenario, unmerged_segments_max=bound)


def test_commits_gather_and_those_of_transactions_and_of_others_do_not() -> None:
    async def scenario(cluster: Cluster, writer: Writer, partition: Partition) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        assert isinstance(await appended(writer, cluster, "t"), Appended)  # the first for a while
        version = partition.snapshot.version
        waiting = [asyncio.create_task(appended(writer, cluster, "t")) for _ in range(3)]
        for free in ("free", INTERNAL):
            assert isinstance(await appended(writer, cluster, free), Appended)
        assert partition.snapshot.version == version
        await loop.passes(260)
        assert [type(await each) for each in waiting] == [Appended] * 3
        assert partition.snapshot.version == version + 1
        waiting = [asyncio.create_task(appended(writer, cluster, "t")) for _ in range(3)]
        assert isinstance(await appended(writer, cluster, "t", OF_TRANSACTION), Appended)
        assert [type(await each) for each in waiting] == [Appended] * 3
        assert partition.snapshot.version == version + 2

    write(scenario, unmerged_segments_gather=1)
