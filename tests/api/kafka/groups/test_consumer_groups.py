"""Groups of KIP-848 over the wire: heartbeats, their descriptions, and offsets by epochs."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from api.kafka.clients.errors import ErrorCode
from api.kafka.groups.consumer_groups import CLASSIC_MEMBER, CONSUMER_MEMBER
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
    ListConfigResourcesRequest,
)
from api.kafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatTopicPartitions,
    ListGroupsRequest,
)
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.notation import ZERO_UUID
from api.kafka.topics.group_configs import DELETE, GROUP, SET
from tests.kit.gateway import NEVER_MS
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_groups import joined, unique
from tests.kit.support import WAIT_S, wait_until


@pytest.fixture
def group(kafka: KafkaGateway) -> str:
    """The name of a group, and of the topic `topic-<group>`, which has two partitions."""
    name = unique("g")
    kafka.create_topic(f"topic-{name}", 2)
    return name


def beat(asking: Asker, group: str, member: str = "a", epoch: int = 0, **said: Any) -> Any:
    if epoch == 0:
        topics = [f"topic-{group}"]
        first: dict[str, Any] = {
            "subscribed_topic_names": topics,
            "rebalance_timeout_ms": 10_000,
            "topic_partitions": [],
        }
        said = {**first, **said}
    return asking.ask(
        ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **said)
    )


def told(asking: Asker, group: str, member: str, epoch: int, **said: Any) -> Any:
    """The answer to the heartbeat by which a member hears of its assignment."""
    answers: list[Any] = []

    def hears() -> bool:
        answers.append(beat(asking, group, member, epoch, **said))
        return answers[-1].assignment is not None

    wait_until(hears, f"{member} hears of its assignment")
    return answers[-1]


def described(asking: Asker, group: str) -> Any:
    (found,) = asking.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
    return found


def numbers(assignment: Any) -> list[int]:
    return [number for topic in assignment.topic_partitions for number in topic.partitions]


def test_a_consumer_of_librdkafka_reads_by_the_new_protocol(kafka: KafkaGateway, group: str) -> None:
    for value in ("one", "two"):
        kafka.running.produce(f"topic-{group}", value)
    own = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": "consumer"}
    with closing(Consumer({**own, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([f"topic-{group}"])
        found = consumer.consume(2, WAIT_S)
        assert sorted(each.value() or b"" for each in found) == [b'"one"', b'"two"']
        assert [each.error for each in consumer.commit(asynchronous=False) or []] == [None, None]


def test_a_member_is_given_partitions_by_topic_id_and_shares_them(asking: Asker, group: str) -> None:
    first = beat(asking, group)
    assert (first.error_code, first.member_id) == (ErrorCode.NONE, "a")
    assert first.heartbeat_interval_ms > 0
    (topic,) = first.assignment.topic_partitions
    assert topic.topic_id != ZERO_UUID
    assert topic.partitions == [0, 1]
    second = beat(asking, group, "b")
    assert numbers(second.assignment) == []
    less = told(asking, group, "a", first.member_epoch)
    kept = [HeartbeatTopicPartitions(topic_id=topic.topic_id, partitions=numbers(less.assignment))]
    after = beat(asking, group, "a", first.member_epoch, topic_partitions=kept)
    assert after.member_epoch > second.member_epoch
    given = beat(asking, group, "b", second.member_epoch)
    assert sorted(numbers(less.assignment) + numbers(given.assignment)) == [0, 1]
    found = described(asking, group)
    assert (found.group_state, found.assignor_name, len(found.members)) == ("Stable", "uniform", 2)
    assert [numbers(each.assignment) for each in found.members] == [
        numbers(each.target_assignment) for each in found.members
    ]
    assert beat(asking, group, "a", -1).member_epoch == -1
    assert beat(asking, group, "b", -1).error_code == ErrorCode.NONE
    assert described(asking, group).group_state == "Empty"


def test_what_cannot_be_is_refused_as_kafka_does(asking: Asker, group: str) -> None:
    refused: list[tuple[ErrorCode, dict[str, Any]]] = [
        (ErrorCode.INVALID_REQUEST, {"epoch": -3}),
        (ErrorCode.INVALID_REQUEST, {"epoch": -2}),
        (ErrorCode.INVALID_REQUEST, {"member": "", "epoch": 1}),
        (ErrorCode.INVALID_REQUEST, {"member": "x" * 300}),
        (ErrorCode.INVALID_REQUEST, {"rebalance_timeout_ms": -1}),
        (ErrorCode.INVALID_REQUEST, {"subscribed_topic_names": None}),
        (ErrorCode.INVALID_REQUEST, {"topic_partitions": None}),
        (ErrorCode.INVALID_REQUEST, {"instance_id": ""}),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, {"server_assignor": "mine"}),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "("}),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, {"subscribed_topic_names": ["__consumer_offsets"]}),
        (ErrorCode.UNKNOWN_MEMBER_ID, {"epoch": 1}),
        (ErrorCode.UNKNOWN_MEMBER_ID, {"epoch": -1}),
    ]
    beat(asking, group, "other")
    for code, asked in refused:
        assert beat(asking, group, **asked).error_code == code, asked
    assert beat(asking, "a/b").error_code == ErrorCode.INVALID_GROUP_ID
    epoch = beat(asking, group).member_epoch
    assert beat(asking, group, epoch=epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    beat(asking, group, "static", instance_id="i")
    assert beat(asking, group, "twin", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    fenced = beat(asking, group, "twin", 5, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_expression_that_others_match_in_exponential_time_is_nothing_special(
    kafka: KafkaGateway, asking: Asker, group: str
) -> None:
    kafka.create_topic(f"{'a' * 200}{group}")
    name: dict[str, Any] = {
        "subscribed_topic_names": None,
        "subscribed_topic_regex": "(a|aa|a*)*(a*)*b{0,200}",
    }
    answer = beat(asking, group, **name)
    assert (answer.error_code, numbers(answer.assignment)) == (ErrorCode.NONE, [])
    beat(asking, group, epoch=answer.member_epoch, subscribed_topic_regex=f"topic-{group}")
    assert numbers(told(asking, group, "a", answer.member_epoch).assignment) == [0, 1]
    assert described(asking, group).members[0].subscribed_topic_regex == f"topic-{group}"


def test_a_gateway_that_does_not_know_a_topic_yet_takes_nobodys_partitions(tmp_path: Path) -> None:
    """Else the other member would be given what the first one still reads."""
    slow, group = {"leader_timeout_ms": NEVER_MS, "refresh_interval_ms": 60_000}, "g"
    with kafka_gateway(tmp_path, **slow) as one, kafka_gateway(tmp_path, **slow) as two, ExitStack() as open_:
        by_port = {int(each.bootstrap.split(":")[1]): each for each in (one, two)}
        asking = {port: open_.enter_context(asker(port)) for port in by_port}
        beat(asking[max(by_port)], group, "first")
        beat(asking[max(by_port)], group, "first", -1)
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        port = asking[max(by_port)].ask(find).coordinators[0].port
        here, there = asking.pop(port), asking.popitem()[1]
        by_port[port].create_topic(f"topic-{group}", 2)
        patient = {"rebalance_timeout_ms": NEVER_MS}  # on a busy machine, too, the first one is not put out
        owner, other = beat(here, group, "a", **patient), beat(here, group, "b", **patient)
        held = owner.assignment.topic_partitions
        less = told(there, group, "a", owner.member_epoch, topic_partitions=held)
        assert len(numbers(less.assignment)) == 1
        assert beat(here, group, "b", other.member_epoch).assignment is None, "the first one reads on"


@pytest.mark.parametrize(
    "nothing",
    [{"subscribed_topic_names": []}, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}],
)
def test_a_member_joins_before_it_has_topics(asking: Asker, group: str, nothing: dict[str, Any]) -> None:
    """Java's `subscribe(Pattern)` sends the names that match, and none may be there yet."""
    joining = beat(asking, group, **nothing)
    assert (joining.error_code, numbers(joining.assignment)) == (ErrorCode.NONE, [])
    assert [each.member_id for each in described(asking, group).members] == ["a"]
    topics = [f"topic-{group}"]
    given = beat(asking, group, epoch=joining.member_epoch, subscribed_topic_names=topics)
    assert numbers(given.assignment) == [0, 1]


def test_version_0_names_a_member_that_names_itself_not(asking: Asker, group: str) -> None:
    first: dict[str, Any] = {
        "subscribed_topic_names": ["t"],
        "rebalance_timeout_ms": 1_000,
        "topic_partitions": [],
    }
    answer = asking.ask(ConsumerGroupHeartbeatRequest(group_id=group, **first), 0)
    assert (answer.error_code, bool(answer.member_id)) == (ErrorCode.NONE, True)


def test_groups_have_types(kafka: KafkaGateway, asking: Asker, group: str) -> None:
    classic = unique("classic")
    kafka.create_topic(f"topic-{classic}")
    joined(asking, classic)
    beat(asking, group)

    def listed(*types: str) -> dict[str, str]:
        found = asking.ask(ListGroupsRequest(types_filter=[*types])).groups
        return {each.group_id: each.group_type for each in found if each.group_id in (group, classic)}

    assert listed() == {group: "consumer", classic: "classic"}
    assert listed("Consumer") == {group: "consumer"}
    assert listed("CLASSIC") == {classic: "classic"}
    assert described(asking, classic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described(asking, unique("none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    answer = beat(asking, classic, "new")
    assert answer.error_code == ErrorCode.NONE
    beat(asking, group, "b")
    wait_until(lambda: described(asking, group).group_state != "Assigning", "the target is computed")
    (found,) = (
        each
        for each in asking.ask(ListGroupsRequest(states_filter=["reconciling"])).groups
        if each.group_id == group
    )
    assert found.group_state == described(asking, group).group_state == "Reconciling"
    found = described(asking, classic)
    assert sorted(each.member_type for each in found.members) == [CLASSIC_MEMBER, CONSUMER_MEMBER]


def test_a_group_of_instances_is_joined_by_kafkas_clients(
    kafka: KafkaGateway, asking: Asker, group: str
) -> None:
    client, headers = kafka.running.client, {"Content-Type": "application/vnd.kafka.v2+json"}
    made = client.post(f"/consumers/{group}", json={"name": "one", "format": "binary"}, headers=headers)
    assert made.status_code == 200, made.text
    at = f"/consumers/{group}/instances/one"
    accept = {"Accept": "application/vnd.kafka.binary.v2+json"}
    client.post(f"{at}/subscription", json={"topics": [f"topic-{group}"]}, headers=headers)
    client.get(f"{at}/records", headers=accept)
    first = beat(asking, group)
    assert numbers(first.assignment) == []
    client.get(f"{at}/records", headers=accept)
    assert len(numbers(beat(asking, group, epoch=first.member_epoch).assignment)) == 1
    assert {each.client_id for each in described(asking, group).members} == {"one", "test"}
    forced = client.post(
        f"{kafka.running.cluster}/consumer-groups/{group}/offsets:reset",
        json={"offsets": [{"topic": f"topic-{group}", "partition": 0, "offset": 0}], "force": True},
    )
    assert forced.status_code in (404, 409)
    client.delete(at)
    wait_until(lambda: described(asking, group).group_state == "Reconciling", "its partition is free")


def commit(asking: Asker, group: str, member: str, epoch: int) -> int:
    topic = OffsetCommitRequestTopic(
        name=f"topic-{group}",
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
    )
    asked = OffsetCommitRequest(
        group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic]
    )
    code: int = asking.ask(asked, 9).topics[0].partitions[0].error_code
    return code


def fetched(asking: Asker, group: str, member: str | None, epoch: int) -> Any:
    topics = [OffsetFetchRequestTopics(name=f"topic-{group}", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
    return asking.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0]


def test_offsets_are_for_members_with_their_epoch(asking: Asker, group: str) -> None:
    epoch = beat(asking, group).member_epoch
    assert commit(asking, group, "a", epoch) == ErrorCode.NONE
    assert commit(asking, group, "a", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(asking, group, "b", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(asking, group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(asking, group, "a", epoch).topics[0].partitions[0].committed_offset == 7
    assert fetched(asking, group, None, -1).error_code == ErrorCode.NONE
    assert fetched(asking, group, "a", epoch - 1).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetched(asking, group, "b", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    beat(asking, group, epoch=-1)
    assert commit(asking, group, "", -1) == ErrorCode.NONE


def test_features_are_finalized(asking: Asker) -> None:
    """Java's clients look whether the group protocol is there, and how transactions are (KIP-890)."""
    answer = asking.ask(ApiVersionsRequest(), 4)
    levels = {"group.version": 1, "transaction.version": 2}
    assert {each.name: each.max_version_level for each in answer.finalized_features} == levels
    assert {each.name: each.max_version for each in answer.supported_features} == levels
    assert answer.finalized_features_epoch == 0


def alter(asking: Asker, group: str, name: str, value: str | None, operation: int = SET) -> int:
    config = IncrementalConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    code: int = asking.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
    return code


def configs(asking: Asker, group: str) -> dict[str, str]:
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    (found,) = asking.ask(DescribeConfigsRequest(resources=[asked])).results
    assert found.error_code == ErrorCode.NONE
    return {each.name: each.value for each in found.configs}


def test_a_group_has_settings_before_it_exists_and_after(asking: Asker, group: str) -> None:
    interval, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    pause = "consumer.assignment.interval.ms"
    assert configs(asking, group) == {pause: "100", interval: "1000", session: "45000"}
    assert alter(asking, group, interval, "2500") == ErrorCode.NONE
    assert configs(asking, group)[interval] == "2500"
    assert group not in {each.group_id for each in asking.ask(ListGroupsRequest()).groups}
    named = asking.ask(ListConfigResourcesRequest(resource_types=[GROUP])).config_resources
    assert group in {each.resource_name for each in named}
    answer = beat(asking, group)
    assert answer.heartbeat_interval_ms == 2_500
    for name, value in (
        (interval, "0"),
        (interval, "45000"),
        (session, "x"),
        (pause, "-1"),
        (pause, "15001"),
        ("share.session.timeout.ms", "1"),
    ):
        assert alter(asking, group, name, value) == ErrorCode.INVALID_CONFIG
    assert alter(asking, group, interval, None) == ErrorCode.INVALID_REQUEST
    assert alter(asking, group, interval, "1", operation=2) == ErrorCode.INVALID_REQUEST
    whole = AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=GROUP, resource_name=group)])
    assert asking.ask(whole).responses[0].error_code == ErrorCode.INVALID_REQUEST
    beat(asking, group, epoch=-1)
    asking.ask(DeleteGroupsRequest(groups_names=[group]))
    assert configs(asking, group)[interval] == "2500"
    assert alter(asking, group, interval, None, DELETE) == ErrorCode.NONE
    assert configs(asking, group)[interval] == "1000"


def test_groups_that_only_have_settings_count(tmp_path: Path) -> None:
    session, full = "consumer.session.timeout.ms", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with (
        kafka_gateway(tmp_path, groups_max=2) as gateway,
        asker(int(gateway.bootstrap.split(":")[1])) as asking,
    ):
        assert [alter(asking, group, session, "46000") for group in ("a", "b", "c")] == [0, 0, full]
        assert beat(asking, "c").error_code == full
        assert beat(asking, "a").error_code == ErrorCode.NONE, "it counts already"
        assert alter(asking, "a", session, "47000") == ErrorCode.NONE
        assert [alter(asking, group, session, None, DELETE) for group in ("b", "d")] == [0, 0]
        assert beat(asking, "c").error_code == ErrorCode.NONE
