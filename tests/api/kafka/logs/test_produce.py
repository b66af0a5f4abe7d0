"""Produce."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import producer_end_txn, producer_sequence_txn
from log_tables.limits import MIB, ONCE_PRODUCER_ID_MIN, PRODUCER_ID_MAX, SEQUENCE_MODULUS
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.txns import ProducerState
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import asker
from tests.kit.kafka_batches import BatchSender
from tests.kit.kafka_served import kafka_served
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.support import WAIT_S, wait_until

DUPLICATE = (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1, -1)


@pytest.fixture
def sender(kafka: KafkaGateway) -> Iterator[BatchSender]:
    with closing(BatchSender(kafka.port)) as made:
        yield made


def sent(client: BatchSender, at: tuple[str, int], sequence: int, epoch: int = 0) -> tuple[int, int, int]:
    """The code, the offset and the time that producer 77 hears for two records."""
    client.send(at, [b"x", b"y"], stamp=(77, epoch, sequence))
    answer = client.answer()
    return answer.error_code, answer.base_offset, answer.log_append_time_ms


def test_the_last_five_batches_again_are_answered_as_the_first_time(
    kafka: KafkaGateway, sender: BatchSender, request: pytest.FixtureRequest
) -> None:
    """An older one is acknowledged without its offset."""
    stamped = {"message.timestamp.type": "LogAppendTime"}
    at = (kafka.create_topic(request.node.name, 1, **stamped), 0)
    first = [sent(sender, at, sequence) for sequence in range(0, 14, 2)]
    assert [each[:2] for each in first] == [(0, offset) for offset in range(0, 14, 2)]
    again = [sent(sender, at, sequence) for sequence in range(0, 14, 2)]
    assert again == [DUPLICATE, DUPLICATE, *first[2:]]


def test_a_killed_gateway_forgets_none_of_the_last_five_batches(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path, leader_timeout_ms=1_000) as killed:
        at = (killed.create_topic("killed", 1, **{"message.timestamp.type": "LogAppendTime"}), 0)
        with closing(BatchSender(killed.port)) as client:
            first = [sent(client, at, sequence) for sequence in range(0, 10, 2)]
        killed.kill()
        killed.start()
        with closing(BatchSender(killed.port)) as client:
            assert [sent(client, at, sequence) for sequence in range(0, 10, 2)] == first
            assert sent(client, at, 10)[:2] == (0, 10)
            assert [sent(client, at, sequence) for sequence in range(0, 12, 2)][:5] == [DUPLICATE, *first[1:]]


def test_a_new_epoch_of_a_known_producer_begins_at_sequence_0(
    kafka: KafkaGateway, sender: BatchSender, request: pytest.FixtureRequest
) -> None:
    at = (kafka.create_topic(request.node.name), 0)
    assert sent(sender, at, 0) == (0, 0, -1)
    assert sent(sender, at, 2, epoch=1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(sender, at, 0, epoch=1) == (0, 2, -1)
    assert sent(sender, at, 2, epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert sent(sender, at, 2, epoch=1) == (0, 4, -1)


def test_no_client_names_what_stands_for_the_request_of_another(
    kafka: KafkaGateway, sender: BatchSender, request: pytest.FixtureRequest
) -> None:
    at = (kafka.create_topic(request.node.name), 0)
    for producer in (ONCE_PRODUCER_ID_MIN, PRODUCER_ID_MAX):
        sender.send(at, [b"x"], stamp=(producer, 0, 0))
        assert sender.answer().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    sender.send(at, [b"x"], stamp=(ONCE_PRODUCER_ID_MIN - 1, 0, 0))
    assert sender.answer().error_code == 0


def test_sequences_go_on_from_0_after_the_largest(
    kafka: KafkaGateway, sender: BatchSender, request: pytest.FixtureRequest
) -> None:
    at = (kafka.create_topic(request.node.name), 0)
    last, clock = SEQUENCE_MODULUS - 3, SystemClock()
    known = {producer_sequence_txn(77): ProducerState(0, last, 0).packed, producer_end_txn(77): 0}
    txns = tuple(Txn(name, version, clock.now_ms()) for name, version in known.items())
    table = Cluster.open(open_store(str(kafka.data))).topic(at[0]).partition(0).table
    table.transact(lambda _: Commit(commit_info(clock, "TWO BILLION RECORDS LATER"), txns=txns))
    sequences = (last, SEQUENCE_MODULUS - 1, 1, 3)
    assert [sent(sender, at, sequence)[:2] for sequence in sequences] == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert [sent(sender, at, sequence)[:2] for sequence in sequences] == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert sent(sender, at, 6)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(sender, at, 0) == DUPLICATE
    assert sent(sender, at, 5)[:2] == (0, 8)


def test_an_answer_says_where_the_log_begins(kafka: KafkaGateway, request: pytest.FixtureRequest) -> None:
    """A Java producer that the log does not know repeats its batch for ever, until it hears that."""
    at = (kafka.create_topic(request.node.name), 0)
    assert kafka.running.produce(at[0], *range(5), partition=0).is_success
    path = f"/topics/{at[0]}/partitions/0/records"
    assert kafka.running.client.delete(path, params={"before": 2}).is_success
    with closing(BatchSender(kafka.port)) as client:
        for sequence in (5, 0, 9):
            client.send(at, [b"x"], stamp=(77, 0, sequence))
        unknown, begun, gap = (client.answer() for _ in range(3))
    assert (unknown.error_code, unknown.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 2)
    assert (begun.error_code, begun.base_offset, begun.log_start_offset) == (0, 5, 2)
    assert (gap.error_code, gap.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_producer_that_wrote_to_a_topic_that_is_gone_is_unknown_there(
    kafka: KafkaGateway, request: pytest.FixtureRequest, elsewhere: bool
) -> None:
    """Only one that begins hears that there is no topic: librdkafka begins anew, and does not end."""
    at = (kafka.create_topic(request.node.name.replace("[", "-").rstrip("]")), 0)
    with closing(BatchSender(kafka.port)) as client:
        assert sent(client, at, 0)[:2] == (0, 0)
        if elsewhere:  # the gateway hears of it when it appends
            delete_topic(Cluster.open(open_store(str(kafka.data))), at[0])
        else:
            path = f"{kafka.running.cluster}/topics/{at[0]}"
            assert kafka.running.client.delete(path).is_success
        answers = []
        for sequence in (2, 4, 0):
            client.send(at, [b"x", b"y"], stamp=(77, 0, sequence))
            answer = client.answer()
            answers.append((answer.error_code, answer.log_start_offset))
        assert answers[:2] == [(ErrorCode.UNKNOWN_PRODUCER_ID, 0)] * 2
        assert answers[2][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        kafka.create_topic(at[0])
        assert sent(client, at, 2)[0] == ErrorCode.UNKNOWN_PRODUCER_ID
        assert sent(client, at, 0, epoch=1)[:2] == (0, 0)


def test_a_batch_that_never_has_room_besides_its_frame_is_too_large(tmp_path: Path) -> None:
    """After an error that says "no room for now" a client would repeat the batch for ever."""
    bounds = {"buffer_memory": 4 * MIB, "max_request_bytes": 3 * MIB}
    with kafka_served(tmp_path, **bounds) as here, asker(here.port) as client:
        create_topic(here.gateway.cluster, "large", 1)
        batch = kafka_python_batch([Sent(None, b"x" * (5 * MIB // 2), 1)])
        part = PartitionProduceData(index=0, records=batch)
        topics = [TopicProduceData(name="large", partition_data=[part])]
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=200, topic_data=topics), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_many_values_are_not_compared_with_declared_columns_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests, also the heartbeats of groups, would wait for the comparison."""
    moved: list[str] = []
    submit = ThreadPoolExecutor.submit

    def noting(pool: ThreadPoolExecutor, work: Callable[..., Any], *given: Any) -> Any:
        for part in getattr(work, "args", ()):
            todo = getattr(part, "work", part)
            moved.append(getattr(getattr(todo, "func", todo), "__name__", ""))
        return submit(pool, work, *given)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noting)
    declared = {"value.columns": "a bigint", "value.columns.mode": "refuse"}
    with kafka_served(tmp_path) as here:
        create_topic(here.gateway.cluster, "judged", 1, declared)
        with closing(BatchSender(here.port)) as client:
            client.send(("judged", 0), [b'{"a": 1}'])
            assert client.answer().error_code == 0
            assert "split" not in moved
            client.send(("judged", 0), [b'{"a": 1}'] * 10_000)
            assert client.answer().error_code == 0
            assert "split" in moved
            client.send(("judged", 0), [b'{"a": 1}'] * 10_000 + [b'{"a": "x"}'])
            assert client.answer().error_code == ErrorCode.INVALID_RECORD


def test_of_two_large_batches_that_wait_for_each_others_frames_one_gets_in(tmp_path: Path) -> None:
    """Each takes nearly all of the memory while it is read, and with the other's frame that is too much."""
    batch = kafka_python_batch([Sent(None, b"x" * 63, 1)] * 11_500)
    part = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10 * int(WAIT_S) * 1_000,
        topic_data=[TopicProduceData(name="large", partition_data=[part])],
    )
    with kafka_served(tmp_path, buffer_memory=4 * MIB, max_request_bytes=3 * MIB) as here:
        create_topic(here.gateway.cluster, "large", 1)
        buffer, ahead = here.gateway.buffer, MIB // 3
        buffer.reserve("others", ahead)
        with ThreadPoolExecutor(2) as clients:
            answers = [clients.submit(asked_alone, here.port, request) for _ in range(2)]
            wait_until(lambda: buffer.used > ahead + 2 * len(batch), "both frames are there")
            buffer.release("others", ahead)
            errors = sorted(each.result(WAIT_S) for each in answers)
    assert errors == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


def asked_alone(port: int, request: ProduceRequest) -> int:
    """The error of the one partition that a client of its own hears."""
    with asker(port) as client:
        return int(client.ask(request, 9).responses[0].partition_responses[0].error_code)
