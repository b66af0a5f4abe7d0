"""The records for which a batch is refused are named, all of them, each with its reason (KIP-467)."""

from functools import partial
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from log_tables.limits import CULPRITS_MAX
from tests.kit.kafka import KafkaGateway, librdkafka_producer
from tests.kit.kafka_asking import Asker
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.support import WAIT_S

FAR_MS = 300_000_000_000_000
AHEAD_MS = 200_000_000_000_000
"""In the year 8307."""
RIGHT = Sent(b"key", b'{"a": 1}', 1_000)
WRONG = {
    "no key": (ErrorCode.INVALID_RECORD, Sent(None, b'{"a": 1}', 1_000), "this one has none; send a key"),
    "a value": (ErrorCode.INVALID_RECORD, Sent(b"key", b'{"a": "b"}', 1_000), "as topic"),
    "a time": (ErrorCode.INVALID_TIMESTAMP, Sent(b"key", b'{"a": 1}', FAR_MS), f"{FAR_MS} ms is outside"),
    "a bound": (ErrorCode.INVALID_TIMESTAMP, Sent(b"key", b'{"a": 1}', AHEAD_MS), "after.max.ms forbids"),
    "a size": (ErrorCode.MESSAGE_TOO_LARGE, Sent(b"key", b" " * 3_000, 1_000), "3003 bytes"),
}
"""By what is wrong: the code of the batch, a record, and a part of its reason."""


BOUNDS = {"max.message.bytes": "2000", "message.timestamp.after.max.ms": "3600000"}


@pytest.fixture(scope="module")
def strict(kafka: KafkaGateway) -> str:
    """A topic that refuses all of WRONG."""
    declared = {"value.columns": "a bigint", "value.columns.mode": "refuse", "cleanup.policy": "compact"}
    return kafka.create_topic("strict", 1, **declared, **BOUNDS)


def sent(asking: Asker, topic: str, records: list[Sent], producer: int = -1) -> PartitionProduceResponse:
    stamp = (False, producer, -1 if producer < 0 else 0, -1 if producer < 0 else 0)
    part = PartitionProduceData(index=0, records=kafka_python_batch(records, stamp=stamp))
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    answer = asking.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


def test_all_records_that_are_wrong_are_named_and_none_that_is_right(asking: Asker, strict: str) -> None:
    """Few records and many, which are read by other ways, of a producer with an id and of one without."""
    for code, wrong, why in WRONG.values():
        for count, places in ((9, (0, 4, 8)), (100, tuple(range(5, 100, 10)))):
            records = [wrong if place in places else RIGHT for place in range(count)]
            for producer in (-1, 4_000 + count):
                answer = sent(asking, strict, records, producer)
                named = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
                assert (answer.error_code, answer.base_offset, tuple(named)) == (code, -1, places)
                assert all(why in text for text in named.values() if text is not None)
                assert answer.error_message == named[places[0]]


def test_a_record_with_two_faults_is_named_once_and_only_so_many_are(asking: Asker, strict: str) -> None:
    both = Sent(None, b'{"a": "b"}', 1_000)
    answer = sent(asking, strict, [both, RIGHT, WRONG["no key"][1]])
    assert [each.batch_index for each in answer.record_errors] == [0, 2]
    answer = sent(asking, strict, [both] * (CULPRITS_MAX + 10))
    assert [each.batch_index for each in answer.record_errors] == [*range(CULPRITS_MAX)]


def test_a_repeat_of_what_the_topic_took_before_is_no_fault(kafka: KafkaGateway, asking: Asker) -> None:
    """The topic has become stricter since."""
    topic = kafka.create_topic("stricter")
    records = [WRONG["no key"][1]]
    assert sent(asking, topic, records, 4_001).base_offset == 0
    path = f"{kafka.running.cluster}/topics/{topic}/configs:alter"
    changed = {"data": [{"name": "cleanup.policy", "value": "compact"}]}
    assert kafka.running.client.post(path, json=changed).is_success
    again = sent(asking, topic, records, 4_001)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert sent(asking, topic, records, 4_002).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("idempotent", [False, True])
def test_librdkafka_fails_those_and_tells_of_the_others_that_they_may_be_sent_again(
    kafka: KafkaGateway, strict: str, idempotent: bool
) -> None:
    settings = {"enable.idempotence": idempotent, "linger.ms": 300}
    for what in ("no key", "a value"):
        producer, failed = librdkafka_producer(kafka.bootstrap, **settings), dict[int, str]()
        for number in range(100):
            key, value, _, _ = WRONG[what][1] if number % 10 == 5 else RIGHT
            producer.produce(strict, value, key, partition=0, on_delivery=partial(noted, failed, number))
        assert producer.flush(WAIT_S) == 0
        others = dict.fromkeys(range(100), "_INVALID_DIFFERENT_RECORD")
        assert failed == others | dict.fromkeys(range(5, 100, 10), "INVALID_RECORD")


def noted(failed: dict[int, str], number: int, error: Any, _: object) -> None:
    """The error of the record with this number."""
    failed[number] = error.name()
