"""Groups of Kafka's clients, as the command line, HTTP and SQL show and change them."""

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.groups import DeleteGroupsRequest, LeaveGroupRequest, MemberIdentity
from api.kafka.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from lakelog import Client, GroupNotEmpty
from log_tables.topic_partition import TopicPartition
from tests.api.kafka.groups.test_committed import code_of, commit
from tests.kit.cli import USAGE, Run, printed, run, wrong
from tests.kit.gateway import RunningGateway
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_groups import joined, sync, unique

__all__ = ["run"]


@pytest.fixture
def gateway(kafka: KafkaGateway) -> RunningGateway:
    return kafka.running


@pytest.fixture
def group(kafka: KafkaGateway) -> str:
    """A group that has committed offset 2 of the three records of the topic to which `joined` subscribes."""
    group = unique("g")
    topic = kafka.create_topic(f"topic-{group}")
    kafka.running.produce(topic, *range(3), partition=0)
    with Client(kafka.running.url) as client:
        client.set_offsets(group, {(topic, 0): 2})
    return group


def test_offsets_are_reset_once_kafkas_members_are_gone(
    run: Run, gateway: RunningGateway, asking: Asker, group: str
) -> None:
    reset = ("group", "reset-offsets", group, "--to", "earliest")
    at = TopicPartition(f"topic-{group}", 0)
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    for more in ((), ("--force",)):
        wrong(run(*reset, *more), USAGE, "has members that joined by Kafka's protocol")
    with Client(gateway.url) as client:
        with pytest.raises(GroupNotEmpty):
            client.set_offsets(group, {at: 0}, force=True)
        assert client.group_offsets(group) == {at: 2}
        gone = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=answer.member_id)])
        assert asking.ask(gone).error_code == ErrorCode.NONE
        assert printed(run(*reset, "--json"))["offsets"] == [
            {"topic": at.topic, "partition": 0, "old": 2, "new": 0}
        ]
        assert client.group_offsets(group) == {at: 0}


def test_both_kinds_of_groups_are_shown(
    run: Run, kafka: KafkaGateway, gateway: RunningGateway, asking: Asker, group: str
) -> None:
    own, topic = unique("http"), f"topic-{group}"
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    with Client(gateway.url) as client:
        client.set_offsets(own, {(topic, 0): 1})
    states = {each["group"]: each["state"] for each in printed(run("group", "list", "--json"))}
    assert (states[group], states[own]) == ("STABLE", "EMPTY")
    told = gateway.client.get(f"{gateway.cluster}/consumer-groups/{group}").json()
    assert (told["state"], told["partition_assignor"]) == ("STABLE", "range")
    where = f"WHERE topic = '{topic}' ORDER BY lag"
    for name, columns in (("consumer_lag", "lag"), ("consumer_offsets", '3 - "offset" AS lag')):
        query = f'SELECT "group", {columns} FROM {name} {where}'
        found = printed(run("sql", query, "--data", str(kafka.data), "--format", "json"))
        assert found == [{"group": group, "lag": 1}, {"group": own, "lag": 2}]


def test_what_kafkas_tools_do_to_a_group_is_undone(
    run: Run, gateway: RunningGateway, asking: Asker, group: str
) -> None:
    at = TopicPartition(f"topic-{group}", 0)
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    asking.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=answer.member_id)]))
    assert code_of(asking.ask(commit(group, at.topic, 3), 9)) == ErrorCode.NONE  # as an admin moves it on
    delete = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=at.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ],
    )
    assert asking.ask(delete).error_code == ErrorCode.NONE
    [deleted] = asking.ask(DeleteGroupsRequest(groups_names=[group])).results
    assert deleted.error_code == ErrorCode.NONE
    with Client(gateway.url) as client:
        acts = client.undo_group(group, dry_run=True)["acts"]
        assert [act["done"] for act in acts] == ["delete-offsets", "reset"], "nothing was left to delete"
        client.undo_group(group)
        assert client.group_offsets(group) == {at: 3}
        assert asking.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == ErrorCode.NONE
        client.undo_group(group, acts=4)
        assert client.group_offsets(group) == {at: 2}
