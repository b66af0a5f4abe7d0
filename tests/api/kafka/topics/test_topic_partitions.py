"""DescribeTopicPartitions: names, the cursor, the limit."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker

PARTITIONS = {"a": 3, "b": 1, "c": 4}


def test_named_topics_are_described_and_others_refused(kafka: KafkaGateway, asking: Asker) -> None:
    kafka.create_topic("partitioned", 2)
    names = [TopicRequest(name=name) for name in ("partitioned", "absent", "partitioned")]
    refused, found = asking.ask(DescribeTopicPartitionsRequest(topics=names)).topics
    assert (refused.name, refused.error_code) == ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (found.name, found.is_internal, len(found.topic_id)) == ("partitioned", False, 16)
    assert [(each.partition_index, each.leader_id, each.isr_nodes) for each in found.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert [bit for bit in range(32) if found.topic_authorized_operations >> bit & 1] == [
        3,
        4,
        5,
        6,
        7,
        8,
        10,
        11,
    ]


def test_a_wrong_limit_or_cursor_is_refused(asking: Asker) -> None:
    for asked in (
        DescribeTopicPartitionsRequest(response_partition_limit=0),
        DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="x", partition_index=-1)),
    ):
        (refused,) = asking.ask(asked).topics
        assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_pages_have_each_partition_once(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path) as gateway, asker(gateway.port) as asking:
        for name, count in PARTITIONS.items():
            gateway.create_topic(name, count)

        @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(
            limit=st.integers(1, 10), names=st.lists(st.sampled_from([*PARTITIONS, "absent"]), unique=True)
        )
        def check(limit: int, names: list[str]) -> None:
            found, cursor = [], None
            while True:
                answer = asking.ask(
                    DescribeTopicPartitionsRequest(
                        topics=[TopicRequest(name=name) for name in names],
                        response_partition_limit=limit,
                        cursor=cursor,
                    )
                )
                shown = [
                    (topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions
                ]
                assert len(shown) <= limit
                found += shown
                cursor = answer.next_cursor
                if cursor is None:
                    break
                assert shown
            wanted = sorted(names or PARTITIONS)
            assert found == [(name, number) for name in wanted for number in range(PARTITIONS.get(name, 0))]

        check()
