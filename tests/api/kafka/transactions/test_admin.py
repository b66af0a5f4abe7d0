"""Transactions as administrators of Kafka see them."""

from collections.abc import Iterator
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.transactions import (
    DescribedTransactionState,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.kafka import KafkaGateway, kafka_gateway, produce
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_groups import unique
from tests.kit.kafka_transactions import TIMEOUT_MS, add, begin, end
from tests.kit.kafka_transactions import produce as produce_in
from tests.kit.secured import Secured, acl, bearer


def described(asking: Asker, name: str) -> DescribedTransactionState:
    (found,) = asking.ask(DescribeTransactionsRequest(transactional_ids=[name, name])).transaction_states
    assert isinstance(found, DescribedTransactionState)
    return found


def listed(asking: Asker, version: int = 2, **filters: Any) -> dict[str, str]:
    answer = asking.ask(ListTransactionsRequest(**filters), version)
    assert answer.error_code == ErrorCode.NONE
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def test_a_transaction_is_described(kafka: KafkaGateway, asking: Asker) -> None:
    topic, name = kafka.create_topic(unique("t"), 2), unique("tx")
    assert described(asking, name).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    held = begin(asking, name)
    found = described(asking, name)
    assert (found.error_code, found.transaction_state, found.transaction_start_time_ms) == (0, "Empty", -1)
    assert (found.producer_id, found.producer_epoch) == (held.producer_id, held.epoch)
    add(asking, held, {topic: [1]})
    produce_in(asking, held, topic, b"x")
    found = described(asking, name)
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert found.transaction_start_time_ms > 0
    assert [(each.topic, each.partitions) for each in found.topics] == [(topic, [0, 1])]
    for commits, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        add(asking, held, {topic: [0]})
        end(asking, held, 4, commits)
        found = described(asking, name)
        assert (found.transaction_state, found.topics) == (state, [])
    end(asking, begin(asking, name), 4, commits=False)
    assert described(asking, name).transaction_state == "CompleteAbort"


def test_a_name_that_no_id_can_have(asking: Asker) -> None:
    assert described(asking, "").error_code == ErrorCode.INVALID_REQUEST


def test_transactions_are_listed_by_filters(kafka: KafkaGateway, asking: Asker) -> None:
    topic, mark = kafka.create_topic(unique("t")), unique("listed")
    idle, busy = begin(asking, f"{mark}-idle"), begin(asking, f"{mark}-busy")
    add(asking, busy, {topic: [0]})
    both = {idle.id: "Empty", busy.id: "Ongoing"}

    def seen(version: int = 2, **filters: Any) -> dict[str, str]:
        return {name: state for name, state in listed(asking, version, **filters).items() if mark in name}

    assert [seen(version) for version in range(3)] == [both] * 3
    assert seen(state_filters=["Ongoing", "Dead"]) == {busy.id: "Ongoing"}
    assert seen(producer_id_filters=[idle.producer_id]) == {idle.id: "Empty"}
    assert seen(duration_filter=3_600_000) == {}
    assert seen(transactional_id_pattern=f"{mark}-b.*") == {busy.id: "Ongoing"}
    assert seen(transactional_id_pattern="busy") == {}, "it matches from end to end"
    assert seen(transactional_id_pattern="") == both
    answer = asking.ask(ListTransactionsRequest(state_filters=["Dead", "Empty"]))
    assert answer.unknown_state_filters == ["Dead"]
    wrong = asking.ask(ListTransactionsRequest(transactional_id_pattern="("))
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    end(asking, busy, 4)


def producers(asking: Asker, topic: str, partition: int = 0) -> tuple[int, list[tuple[int, int, int, int]]]:
    asked = DescribeProducersTopicRequest(name=topic, partition_indexes=[partition])
    (part,) = asking.ask(DescribeProducersRequest(topics=[asked])).topics[0].partitions
    return part.error_code, [
        (each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset)
        for each in part.active_producers
        if each.last_timestamp > 0
    ]


def test_the_producers_of_a_partition_and_no_transaction(kafka: KafkaGateway, asking: Asker) -> None:
    topic = kafka.create_topic(unique("t"))
    produce(kafka.bootstrap, topic, [b"1", b"2", b"3"], **{"enable.idempotence": True})
    held = begin(asking, unique("tx"))
    produce_in(asking, held, topic, b"x")
    assert producers(asking, topic) == (0, [(0, 2, -1, -1)])
    end(asking, held, 4)
    assert producers(asking, topic) == (0, [(0, 2, -1, -1)]), "the one that applies is lakelog's own"
    for name, partition in ((unique("none"), 0), (topic, 1)):
        assert producers(asking, name, partition) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaGateway, str, str]]:
    """A gateway with the keys of an administrator, and of one who may see the id `seen` and the topic `t`."""
    root = tmp_path_factory.mktemp("root")
    made = Secured(root)
    admin, looker = made.key(), made.key("User:looker")
    made.allow(
        acl("User:looker", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "seen"),
        acl("User:looker", Operation.DESCRIBE, ResourceType.TOPIC, "t"),
    )
    with kafka_gateway(root, authentication_methods="api-key") as gateway:
        gateway.running.client.headers.update(bearer(admin))
        yield gateway, admin, looker


def test_one_sees_what_one_may_describe(secured: tuple[KafkaGateway, str, str]) -> None:
    gateway, admin, looker = secured
    with asker(gateway.port) as writes, asker(gateway.port) as looks:
        writes.key(admin)
        looks.key(looker)
        for topic in ("t", "hidden"):
            gateway.create_topic(topic)
        for name in ("seen", "unseen"):
            add(writes, begin(writes, name), {"t": [0], "hidden": [0]})
        assert listed(writes) == {"seen": "Ongoing", "unseen": "Ongoing"}
        assert listed(looks) == {"seen": "Ongoing"}
        assert [each.topic for each in described(writes, "seen").topics] == ["hidden", "t"]
        assert [each.topic for each in described(looks, "seen").topics] == ["t"]
        denied = described(looks, "unseen")
        assert denied.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert producers(looks, "t") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, []), "it takes READ"
