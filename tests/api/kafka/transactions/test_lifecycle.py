"""Transactions as Kafka's clients run them: what each request is answered, and what stands in the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import ids_group
from tests.kit.kafka import KafkaGateway, kafka_gateway, read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_groups import unique
from tests.kit.kafka_transactions import TIMEOUT_MS, Held, add, begin, end, pend, produce
from tests.kit.secured import Secured, acl
from tests.kit.support import WAIT_S

LONGEST_MS = 900_000

V1_PRODUCE, V2_PRODUCE = 11, 12
"""The newest version before KIP-890, and the one with it."""


def committed(asking: Asker, group: str, topic: str, stable: bool = True) -> tuple[int, int]:
    """The code and the offset of the first partition."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
    )
    (part,) = asking.ask(asked, 9).groups[0].topics[0].partitions
    return part.error_code, part.committed_offset


def values(kafka: KafkaGateway, topic: str) -> list[bytes | None]:
    return [each.value for each in read_all(kafka.bootstrap, topic)]


def test_librdkafka_commits_and_aborts(kafka: KafkaGateway) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("tx")})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    producer.init_transactions(WAIT_S)
    for name, commits in (("one", True), ("two", False), ("three", True)):
        producer.begin_transaction()
        producer.produce(topic, name)
        if commits:
            place = [TopicPartition(topic, 0, len(name))]
            producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    assert values(kafka, topic) == [b"one", b"three"]
    assert [each.offset for each in consumer.committed([TopicPartition(topic, 0)], WAIT_S)] == [5]
    consumer.close()


def test_librdkafka_is_fenced_by_another(kafka: KafkaGateway) -> None:
    topic = kafka.create_topic(unique("t"))
    config = {"bootstrap.servers": kafka.bootstrap, "transactional.id": unique("tx")}
    old, new = Producer(config), Producer(config)
    old.init_transactions(WAIT_S)
    old.begin_transaction()
    old.produce(topic, "lost")
    old.flush(WAIT_S)
    new.init_transactions(WAIT_S)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    new.begin_transaction()
    new.produce(topic, "kept")
    new.commit_transaction(WAIT_S)
    assert values(kafka, topic) == [b"kept"]


def test_partitions_are_added_before_and_the_epoch_stays(kafka: KafkaGateway, asking: Asker) -> None:
    """Transaction version 1."""
    topic = kafka.create_topic(unique("t"))
    held = begin(asking, unique("tx"))
    assert produce(asking, held, topic, b"x", version=V1_PRODUCE).error_code == ErrorCode.INVALID_TXN_STATE
    assert add(asking, held, {topic: [0]}) == {topic: [0]}
    answer = produce(asking, held, topic, b"x", version=V1_PRODUCE)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, -1)
    for _ in range(2):  # a repeat changes nothing
        assert end(asking, held, 4).error_code == ErrorCode.NONE
    assert end(asking, held, 4, commits=False).error_code == ErrorCode.INVALID_TXN_STATE
    assert values(kafka, topic) == [b"x"]


def test_partitions_add_themselves_and_the_epoch_moves_on(kafka: KafkaGateway, asking: Asker) -> None:
    """Transaction version 2."""
    topic = kafka.create_topic(unique("t"))
    held = begin(asking, unique("tx"))
    assert produce(asking, held, topic, b"x", version=V2_PRODUCE).error_code == ErrorCode.NONE
    ended = end(asking, held, 5)
    assert (ended.producer_id, ended.producer_epoch) == (held.producer_id, held.epoch + 1)
    again = end(asking, held, 5)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, held.epoch + 1)
    late = produce(asking, held, topic, b"late", sequence=1)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(kafka, topic) == [b"x"]


def test_all_partitions_are_added_or_none(kafka: KafkaGateway, asking: Asker) -> None:
    topic, none = kafka.create_topic(unique("t")), unique("none")
    held = begin(asking, unique("tx"))
    codes = add(asking, held, {topic: [0], none: [0]})
    assert codes == {
        topic: [ErrorCode.OPERATION_NOT_ATTEMPTED],
        none: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }
    assert add(asking, held, {topic: [7]}) == {topic: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    assert end(asking, held, 4).error_code == ErrorCode.INVALID_TXN_STATE, "none is open"


def test_a_fenced_producer_hears_what_its_version_has(kafka: KafkaGateway, asking: Asker) -> None:
    """KIP-588."""
    topic, group = kafka.create_topic(unique("t")), unique("g")
    old = begin(asking, unique("tx"))
    begin(asking, old.id)
    for before, since in ((1, 2), (0, 4)):
        for version, code in (
            (before, ErrorCode.INVALID_PRODUCER_EPOCH),
            (since, ErrorCode.PRODUCER_FENCED),
        ):
            assert add(asking, old, {topic: [0]}, min(version, 3)) == {topic: [code]}
            assert end(asking, old, version).error_code == code
            asked = AddOffsetsToTxnRequest(**old.place, group_id=group)
            assert asking.ask(asked, version).error_code == code
    for version, code in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        asked_again = InitProducerIdRequest(
            transactional_id=old.id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=old.producer_id,
            producer_epoch=old.epoch - 1,
        )
        assert asking.ask(asked_again, version).error_code == code
    assert produce(asking, old, topic, b"x").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert pend(asking, old, group, topic, 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_of_nobody_is_told_to_begin_again(kafka: KafkaGateway, asking: Asker) -> None:
    topic, stranger = kafka.create_topic(unique("t")), Held(unique("tx"), 12_345, 0)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add(asking, stranger, {topic: [0]}) == {topic: [code]}
    assert end(asking, stranger, 4).error_code == code
    assert produce(asking, stranger, topic, b"x").error_code == code


@pytest.mark.parametrize("timeout_ms", [-1, 0, LONGEST_MS + 1])
def test_a_timeout_that_is_not_allowed(asking: Asker, timeout_ms: int) -> None:
    asked = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=timeout_ms)
    assert asking.ask(asked).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_id_that_cannot_be(asking: Asker) -> None:
    for name in ("", "x" * 1_001):
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        assert asking.ask(asked).error_code == ErrorCode.INVALID_REQUEST


def test_offsets_wait_for_the_end(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    held = begin(asking, unique("tx"))
    assert pend(asking, held, group, topic, 5) == ErrorCode.INVALID_TXN_STATE, "it was not added"
    for version, commits, found in ((3, False, -1), (5, True, 6)):
        if version < 5:
            assert asking.ask(AddOffsetsToTxnRequest(**held.place, group_id=group)).error_code == 0
        assert pend(asking, held, group, topic, version + 1, version) == ErrorCode.NONE
        assert committed(asking, group, topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert committed(asking, group, topic, stable=False) == (ErrorCode.NONE, -1)
        assert end(asking, held, 4, commits).error_code == ErrorCode.NONE
        assert committed(asking, group, topic) == (ErrorCode.NONE, found)


def test_offsets_of_partitions_that_there_are_wait_and_others_are_refused_at_once(
    kafka: KafkaGateway, asking: Asker
) -> None:
    """As Kafka 4.3.1 does: its clients ask for those again until their time-out."""
    topic, group, none = kafka.create_topic(unique("t")), unique("g"), unique("none")
    held = begin(asking, unique("tx"))
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=at, committed_offset=3) for at in (0, 7)
            ],
        )
        for name in (topic, none)
    ]
    answer = asking.ask(TxnOffsetCommitRequest(**held.place, group_id=group, topics=topics), 5)
    codes = {each.name: [part.error_code for part in each.partitions] for each in answer.topics}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {topic: [ErrorCode.NONE, unknown], none: [unknown, unknown]}
    assert end(asking, held, 5).error_code == ErrorCode.NONE
    assert committed(asking, group, topic) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("group", ["", "a/b", "g" * 250, ids_group(0)])
def test_offsets_of_a_group_that_cannot_be_are_in_no_transaction(
    kafka: KafkaGateway, asking: Asker, group: str
) -> None:
    topic, held = kafka.create_topic(unique("t")), begin(asking, unique("tx"))
    asked = AddOffsetsToTxnRequest(**held.place, group_id=group)
    assert asking.ask(asked).error_code == ErrorCode.INVALID_GROUP_ID
    assert pend(asking, held, group, topic, 1, version=5) == ErrorCode.INVALID_GROUP_ID
    assert produce(asking, held, topic, b"x").error_code == ErrorCode.NONE
    held = held._replace(epoch=end(asking, held, 5).producer_epoch)
    assert produce(asking, held, topic, b"next").error_code == ErrorCode.NONE
    assert values(kafka, topic) == [b"x"]


# With ACLs.


class Place(NamedTuple):
    """A gateway that authenticates, a topic there, and the key of a principal for each thing it lacks."""

    gateway: KafkaGateway
    keys: dict[str, str]


ALLOWED = {
    "id": (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx"),
    "topic": (Operation.WRITE, ResourceType.TOPIC, "t"),
    "group": (Operation.READ, ResourceType.GROUP, "g"),
    "offsets": (Operation.READ, ResourceType.TOPIC, "t"),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root: Path = tmp_path_factory.mktemp("root")
    made = Secured(root)
    keys = {"admin": made.key()}
    for lacks in ("nothing", *ALLOWED):
        name = f"User:without-{lacks}"
        keys[lacks] = made.key(name)
        made.allow(*(acl(name, *each) for what, each in ALLOWED.items() if what != lacks))
    with kafka_gateway(root, authentication_methods="api-key") as gateway:
        gateway.running.client.headers.update({"Authorization": f"Bearer {keys['admin']}"})
        gateway.create_topic("t")
        yield Place(gateway, keys)


def codes(secured: Place, lacks: str) -> dict[str, int]:
    """The codes of a principal that lacks something, in a transaction that the administrator has begun."""
    with asker(secured.gateway.port) as admin, asker(secured.gateway.port) as client:
        admin.key(secured.keys["admin"])
        client.key(secured.keys[lacks])
        held = begin(admin, "tx")
        asked = InitProducerIdRequest(transactional_id="tx2" if lacks == "id" else "tx")
        asked.transaction_timeout_ms = TIMEOUT_MS
        found = {
            "add": add(client, held, {"t": [0]})["t"][0],
            "produce": produce(client, held, "t", b"x").error_code,
            "add offsets": client.ask(AddOffsetsToTxnRequest(**held.place, group_id="g")).error_code,
            "pend": pend(client, held, "g", "t", 1, version=5),
            "end": end(client, held, 4).error_code,
            "begin": client.ask(asked).error_code,
        }
        return {what: code for what, code in found.items() if code}


def test_each_needs_what_it_needs_in_kafka(secured: Place) -> None:
    no_id = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    no_topic, no_group = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert codes(secured, "nothing") == {}
    steps = ("add", "produce", "add offsets", "pend", "end", "begin")
    assert codes(secured, "id") == dict.fromkeys(steps, no_id)
    assert codes(secured, "topic") == {"add": no_topic, "produce": no_topic}
    assert codes(secured, "group") == {"add offsets": no_group, "pend": no_group}
    assert codes(secured, "offsets") == {"pend": no_topic}
