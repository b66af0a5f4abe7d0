"""The offsets that groups have committed, asked for as Kafka's clients do: every version, and the errors."""

from typing import Any

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.notation import ZERO_UUID
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_groups import joined, sync, unique


def commit(group: str, topic: str, offset: int, partition: int = 0, **asked: Any) -> OffsetCommitRequest:
    place = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata="note",
    )
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
        **asked,
    )


def code_of(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


def fetch(asking: Asker, group: str, topic: str, version: int) -> Any:
    """The answer for a group."""
    if version < 8:
        named = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        return asking.ask(OffsetFetchRequest(group_id=group, topics=named), version)
    of_group = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    (answer,) = asking.ask(OffsetFetchRequest(groups=[of_group]), version).groups
    return answer


def fetched(asking: Asker, group: str, topic: str, version: int = 9) -> Any:
    """The only partition of the answer."""
    return fetch(asking, group, topic, version).topics[0].partitions[0]


def test_every_version_of_a_commit_and_a_fetch(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    for version in range(2, 10):
        assert code_of(asking.ask(commit(group, topic, version), version)) == ErrorCode.NONE
        found = fetched(asking, group, topic, max(version - 1, 1))
        assert (found.committed_offset, found.metadata) == (version, "note")
        assert found.committed_leader_epoch == (0 if version > 5 else -1), "older ones have none"


def test_all_offsets_of_a_group(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t"), 2), unique("g")
    for partition in (0, 1):
        asking.ask(commit(group, topic, 5 + partition, partition), 9)
    for version in range(2, 8):
        (found,) = asking.ask(OffsetFetchRequest(group_id=group, topics=None), version).topics
        assert [each.committed_offset for each in found.partitions] == [5, 6]
    many = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (group, "none", group)]
    first, second = asking.ask(OffsetFetchRequest(groups=many), 9).groups
    assert [each.committed_offset for each in first.topics[0].partitions] == [5, 6]
    assert (second.topics, second.error_code) == ([], ErrorCode.NONE)


def test_every_version_of_a_fetch_says_that_it_failed(asking: Asker) -> None:
    """The first one has no error but those of partitions: without it nothing would seem to be committed."""
    for version in range(1, 10):
        answer = fetch(asking, "a/b", "t", version)
        failed = answer if version > 1 else answer.topics[0].partitions[0]
        assert failed.error_code == ErrorCode.INVALID_GROUP_ID


def test_topics_by_their_ids(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    asking.ask(commit(group, topic, 1), 9)
    every = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = asking.ask(every, 10).groups
    own = found.topics[0].topic_id
    assert own != ZERO_UUID
    request = commit(group, "", 7)
    request.topics[0].topic_id = own
    assert code_of(asking.ask(request, 10)) == ErrorCode.NONE
    named = OffsetFetchRequestGroup(
        group_id=group,
        topics=[OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (own, b"x" * 16)],
    )
    (found,) = asking.ask(OffsetFetchRequest(groups=[named]), 10).groups
    (known,), (unknown,) = (each.partitions for each in found.topics)
    assert known.committed_offset == 7
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.topics[0].topic_id = b"x" * 16
    assert code_of(asking.ask(request, 10)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_each_partition_has_a_code_of_its_own(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    request = commit(group, topic, 3)
    request.topics += commit(group, unique("none"), 3).topics + commit(group, topic, 3, 9).topics
    request.topics += commit(group, topic, 3, 8).topics
    request.topics[3].partitions[0].committed_metadata = "x" * 4_097
    answer = asking.ask(request, 9)
    assert [each.partitions[0].error_code for each in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    long = commit(group, topic, 3)
    long.topics[0].partitions[0].committed_metadata = "x" * 4_097
    assert code_of(asking.ask(long, 9)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetched(asking, group, topic).committed_offset == 3
    assert fetched(asking, group, unique("none")).committed_offset == -1


def test_members_commit_by_their_generation(kafka: KafkaGateway, asking: Asker) -> None:
    topic, group = kafka.create_topic(unique("t")), unique("g")
    answer = joined(asking, group)
    who = {"member_id": answer.member_id, "generation_id_or_member_epoch": answer.generation_id}
    assert code_of(asking.ask(commit(group, topic, 1, **who), 9)) == ErrorCode.REBALANCE_IN_PROGRESS
    asking.ask(sync(group, answer))
    assert code_of(asking.ask(commit(group, topic, 1, **who), 9)) == ErrorCode.NONE
    assert code_of(asking.ask(commit(group, topic, 1), 9)) == ErrorCode.UNKNOWN_MEMBER_ID
    who["generation_id_or_member_epoch"] = 9
    assert code_of(asking.ask(commit(group, topic, 1, **who), 9)) == ErrorCode.ILLEGAL_GENERATION


def test_offsets_are_deleted_unless_a_member_is_subscribed(kafka: KafkaGateway, asking: Asker) -> None:
    group = unique("g")
    subscribed = kafka.create_topic(f"topic-{group}")  # to which `joined` subscribes
    other = kafka.create_topic(unique("t"))
    for topic in (subscribed, other):
        asking.ask(commit(group, topic, 1), 9)
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    delete = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in (subscribed, other)
        ],
    )
    found = asking.ask(delete)
    assert found.error_code == ErrorCode.NONE
    assert [each.partitions[0].error_code for each in found.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]
    assert fetched(asking, group, other).committed_offset == -1
    assert fetched(asking, group, subscribed).committed_offset == 1
    delete.group_id = unique("none")
    assert asking.ask(delete).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_negative_offset_is_none(kafka: KafkaGateway, asking: Asker) -> None:
    """Kafkajs resets a group to the earliest by -2 and to the latest by -1. Kafka keeps both, and its clients
    take either for no committed offset.
    """
    topic, group = kafka.create_topic(unique("t")), unique("g")
    for offset in (-2, -1):
        assert code_of(asking.ask(commit(group, topic, 5), 9)) == ErrorCode.NONE
        assert fetched(asking, group, topic).committed_offset == 5
        assert code_of(asking.ask(commit(group, topic, offset), 9)) == ErrorCode.NONE
        assert fetched(asking, group, topic).committed_offset == -1
        assert code_of(asking.ask(commit(group, topic, offset), 9)) == ErrorCode.NONE
