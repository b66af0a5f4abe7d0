"""How large an answer to Fetch is, and what it holds and waits for meanwhile."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.limits import LOOKS_AT_ONCE
from log_tables.store.store import Store, open_store
from log_tables.testing import HoldingStore
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import kafka_served
from tests.kit.partitions import append
from tests.kit.support import wait_until

PARTITIONS = 5
RECORDS = 12
READS = frozenset({"get", "get_range", "head", "list"})


def fetched(
    asking: Asker, topic: str, offsets: Sequence[tuple[int, int]], max_bytes: int, partition_max_bytes: int
) -> list[PartitionData]:
    """The answer for these partitions and offsets, in their order."""
    parts = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for number, offset in offsets
    ]
    topics = [FetchTopic(topic=topic, partitions=parts)]
    (answer,) = asking.ask(FetchRequest(topics=topics, min_bytes=1, max_bytes=max_bytes), 12).responses
    found: list[PartitionData] = answer.partitions
    return found


def counts(records: bytes) -> list[int]:
    """How many records each of the batches has; the last one is whole, too."""
    found = []
    while records:
        end = 12 + int.from_bytes(records[8:12])
        assert end <= len(records)
        found.append(int.from_bytes(records[57:61]))
        records = records[end:]
    return found


@pytest.fixture(scope="module")
def uneven(kafka: KafkaGateway) -> str:
    """A topic whose records are small or large, all of a partition in one segment."""
    name, sizes = kafka.create_topic("uneven", PARTITIONS), (1, 30, 200, 2_000, 6_000)
    for number in range(PARTITIONS):
        values = ["x" * sizes[(number + place * place) % len(sizes)] for place in range(RECORDS)]
        assert kafka.running.produce(name, *values, partition=number).is_success
    return name


@pytest.fixture
def wide(tmp_path: Path) -> Store:
    """A root with a topic of many partitions that nobody has open, each with a record."""
    store = open_store(str(tmp_path))
    topic = create_topic(Cluster.open(store), "wide", 2 * LOOKS_AT_ONCE)
    for partition in topic.partitions():
        partition.claim("http://gone")
        append(partition, b"v" * 1_000)
    return store


@contextmanager
def held(store: HoldingStore) -> Iterator[None]:
    """Reads wait within the context."""
    store.hold()
    try:
        yield
    finally:
        store.let_go()


@given(
    max_bytes=st.integers(1, 9_000) | st.integers(1, 60_000),
    partition_max_bytes=st.integers(1, 7_000),
    order=st.permutations(range(PARTITIONS)),
    offsets=st.lists(st.integers(0, RECORDS), min_size=PARTITIONS, max_size=PARTITIONS),
)
@settings(max_examples=80, deadline=None)
def test_only_the_first_record_of_an_answer_exceeds_its_bounds(
    kafka: KafkaGateway,
    uneven: str,
    max_bytes: int,
    partition_max_bytes: int,
    order: list[int],
    offsets: list[int],
) -> None:
    """As KIP-74 says it: a client may refuse larger answers, and would ask for the same again."""
    with asker(kafka.port) as asking:
        asked = [(number, offsets[number]) for number in order]
        answer = fetched(asking, uneven, asked, max_bytes, partition_max_bytes)
    given_ = [bytes(part.records or b"") for part in answer]
    full = [each for each in given_ if each]
    assert bool(full) == any(offset < RECORDS for offset in offsets)
    for place, each in enumerate(full):
        alone = place == 0 and counts(each) == [1]
        assert len(each) <= partition_max_bytes or alone
    assert sum(map(len, full)) <= max_bytes or (len(full) == 1 and counts(full[0]) == [1])
    first = next((place for place, (_, offset) in enumerate(asked) if offset < RECORDS), None)
    assert first is None or given_[first], "the first partition that has records has some in the answer"


def test_a_client_that_asks_for_another_partition_first_each_time_gets_all(
    asking: Asker, uneven: str
) -> None:
    """No partition waits behind the others for ever, and little is asked for twice."""
    offsets, turns = dict.fromkeys(range(PARTITIONS), 0), 0
    while any(offset < RECORDS for offset in offsets.values()):
        order = [(turns + each) % PARTITIONS for each in range(PARTITIONS)]
        asked = [(each, offsets[each]) for each in order]
        for part in fetched(asking, uneven, asked, 7_000, 1 << 20):
            offsets[part.partition_index] += sum(counts(bytes(part.records or b"")))
        turns += 1
    assert turns < 2 * PARTITIONS * RECORDS


def test_what_a_thread_reads_for_a_client_that_left_holds_its_room(tmp_path: Path, wide: Store) -> None:
    """The thread finishes the partition that it reads, and begins no other."""
    holding = HoldingStore(wide, ".parquet", READS)
    with kafka_served(tmp_path, wrap=lambda _: holding) as here:
        with held(holding):
            with asker(here.port) as client:
                client.send(of_partitions(range(4)), 12)
                wait_until(lambda: holding.held == 1, "a record is read")
            wait_until(lambda: len(here.listener) == 0, "the client has left")
            assert here.listener.answers.used > 4_000
        wait_until(here.is_idle, "nothing is held")
        assert holding.most == 1


def test_the_partitions_of_a_first_fetch_are_opened_side_by_side(tmp_path: Path, wide: Store) -> None:
    """One after the other, a thousand of them would take longer than a client waits."""
    holding = HoldingStore(wide, "topics/wide", READS)
    with kafka_served(tmp_path, wrap=lambda _: holding) as here, asker(here.port) as client:
        assert client.ask(of_partitions([0]), 12).responses[0].partitions[0].records
        with held(holding):
            client.send(of_partitions(range(2 * LOOKS_AT_ONCE)), 12)
            wait_until(lambda: holding.held >= LOOKS_AT_ONCE, "so many are opened at once")
        (answer,) = client.answer(FetchRequest, 12).responses
        assert all(part.records for part in answer.partitions)


def of_partitions(numbers: Sequence[int]) -> FetchRequest:
    """A request for the records of these partitions of the wide topic."""
    parts = [FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in numbers]
    return FetchRequest(topics=[FetchTopic(topic="wide", partitions=parts)])
