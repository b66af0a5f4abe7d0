"""Requests of Kafka's clients to gateways that lead and gateways that do not: what one connection sends to a
partition is appended in that order, also while leadership moves.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count, product
from pathlib import Path

import pytest

from api.kafka.clients.errors import ErrorCode
from tests.kit.gateway import LEADER_TIMEOUT_MS, NEVER_MS
from tests.kit.kafka import KafkaGateway, read_all
from tests.kit.kafka_batches import BatchSender
from tests.kit.several import brokers
from tests.kit.support import wait_until

PIPELINED = 20


@contextmanager
def gateways(data: Path, number: int, timeout_ms: int = NEVER_MS) -> Iterator[list[KafkaGateway]]:
    settings: dict[str, object] = {"linger_ms": 1, "leader_timeout_ms": timeout_ms}
    with ExitStack() as stack:
        found = [stack.enter_context(closing(KafkaGateway(data, settings))) for _ in range(number)]
        for gateway in found:
            wait_until(lambda: alive(gateway) == number, "each gateway sees all")  # noqa: B023
        yield found


def alive(gateway: KafkaGateway) -> int:
    return sum(1 for each in brokers(gateway.running.url) if each["alive"])


def values_of(gateway: KafkaGateway, topic: str, partitions: int = 1) -> list[bytes]:
    return [each.value or b"" for each in read_all(gateway.bootstrap, topic, partitions)]


def test_a_batch_for_another_gateway_is_forwarded_in_its_turn(tmp_path: Path) -> None:
    with gateways(tmp_path, 2) as pair:
        pair[0].create_topic("t", 2)
        with ExitStack() as stack:
            clients = [stack.enter_context(closing(BatchSender(each.port))) for each in pair]
            for number in range(PIPELINED):
                for asked, partition in product((0, 1), (0, 1)):
                    value = b"%d-%d-%d" % (asked, partition, number)
                    clients[asked].send(("t", partition), [value, value + b"'"])
            for client in clients:
                answers = [client.answer() for _ in range(2 * PIPELINED)]
                assert {each.error_code for each in answers} == {0}
                for partition in (0, 1):
                    offsets = [each.base_offset for each in answers if each.index == partition]
                    assert offsets == sorted(offsets)
        found = values_of(pair[0], "t", 2)
        assert len(found) == 8 * PIPELINED
        for asked, partition in product((0, 1), (0, 1)):
            own = [each for each in found if each.startswith(b"%d-%d-" % (asked, partition))]
            sent = [b"%d-%d-%d" % (asked, partition, number) for number in range(PIPELINED)]
            assert own == [each for value in sent for each in (value, value + b"'")]


@pytest.mark.parametrize(
    "acks",
    [
        pytest.param((-1,), id="all", marks=pytest.mark.torture),
        pytest.param((0, -1), id="0 and all", marks=pytest.mark.torture),
        pytest.param((1, 0, -1), id="1, 0 and all"),
    ],
)
def test_order_is_kept_while_partitions_are_handed_over(tmp_path: Path, acks: tuple[int, ...]) -> None:
    """A second gateway comes, and each of both leads two of the partitions."""
    with gateways(tmp_path, 1, LEADER_TIMEOUT_MS) as (one,), closing(BatchSender(one.port)) as client:
        one.create_topic("t", 4)
        sent, numbers = 0, count()

        def send() -> None:
            nonlocal sent
            for number in range(sent, sent + PIPELINED):
                for partition in range(4):
                    answered = acks[number % len(acks)]
                    client.send(("t", partition), [b"%d-%d" % (partition, number)], answered)
            for number in range(sent, sent + PIPELINED):
                expected = 4 if acks[number % len(acks)] != 0 else 0
                assert [client.answer().error_code for _ in range(expected)] == [0] * expected
            sent += PIPELINED

        send()
        with closing(KafkaGateway(tmp_path, one.settings)) as two:
            while len(leaders(two)) < 2:
                send()
                assert next(numbers) < 2_000, "nothing is handed over"
            send()
        send()
        wait_until(lambda: len(values_of(one, "t", 4)) == 4 * sent, "what was sent with acks=0 is there")
        expected = [b"%d-%d" % (partition, number) for partition in range(4) for number in range(sent)]
        assert values_of(one, "t", 4) == expected


def leaders(gateway: KafkaGateway) -> set[int]:
    answer = gateway.running.client.get("/topics/t/partitions").json()
    return {each["leader"] for each in answer}


def test_a_repeat_at_another_gateway_is_written_once(tmp_path: Path) -> None:
    with gateways(tmp_path, 2) as pair, ExitStack() as stack:
        pair[0].create_topic("t")
        clients = [stack.enter_context(closing(BatchSender(each.port))) for each in pair]
        for sequence in range(PIPELINED):
            for client in clients:
                client.send(("t", 0), [b"%d" % sequence], stamp=(77, 0, sequence))
        answers = [[client.answer() for _ in range(PIPELINED)] for client in clients]
        codes = {each.error_code for answer in answers for each in answer}
        passing = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
        assert codes <= {0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, *passing}
        found = values_of(pair[1], "t")
        assert found == [b"%d" % number for number in range(len(found))]
        for answer in answers:
            placed = {each.base_offset: number for number, each in enumerate(answer) if each.base_offset >= 0}
            assert all(offset == number for offset, number in placed.items())


@pytest.mark.parametrize("padding", [0, 100_000], ids=["small", "decoded in a thread"])
def test_what_was_sent_with_acks_0_is_there_when_its_client_has_gone(tmp_path: Path, padding: int) -> None:
    with gateways(tmp_path, 1) as (one,):
        one.create_topic("t")
        expected = [b"%d" % number + b"." * padding for number in range(PIPELINED)]
        with closing(BatchSender(one.port)) as client:
            for value in expected:
                client.send(("t", 0), [value], acks=0)
        wait_until(lambda: values_of(one, "t") == expected, "all is there")
