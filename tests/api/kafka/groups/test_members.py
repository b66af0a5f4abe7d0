"""The members of groups, asked for as Kafka's clients do: every version, and every error by its code."""

import logging
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.clients.seldom import Seldom
from api.kafka.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
)
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from coordinator.groups.classic.consumer_protocol import encode_assignment
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_groups import heartbeat, join, joined, sync, unique
from tests.kit.kafka_served import kafka_served


def test_every_version_of_a_membership(asking: Asker) -> None:
    for version in range(10):
        group = unique("g")
        answer = asking.ask(join(group), version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            answer = asking.ask(join(group, answer.member_id), version)
        assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
        assert answer.member_id.startswith("test-")
        assert answer.leader == answer.member_id
        assert answer.protocol_name == "range"
        synced = asking.ask(sync(group, answer), min(version, 5))
        assert synced.assignment == encode_assignment([TopicPartition(f"topic-{group}", 0)])
        assert asking.ask(heartbeat(group, answer), min(version, 4)).error_code == ErrorCode.NONE
        leave = LeaveGroupRequest(
            group_id=group,
            member_id=answer.member_id,
            members=[MemberIdentity(member_id=answer.member_id), MemberIdentity(member_id="x")],
        )
        left = asking.ask(leave, min(version, 5))
        assert left.error_code == ErrorCode.NONE
        if version >= 3:
            codes = [each.error_code for each in left.members]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "a/b"}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_join_is_refused(asking: Asker, asked: dict[str, Any], code: ErrorCode) -> None:
    assert asking.ask(join(unique("g"), **asked)).error_code == code


def test_an_old_generation_and_a_stranger_are_refused(asking: Asker) -> None:
    group = unique("g")
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    assert asking.ask(heartbeat(group, answer, 7)).error_code == ErrorCode.ILLEGAL_GENERATION
    answer.member_id = "stranger"
    assert asking.ask(heartbeat(group, answer)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert asking.ask(sync(group, answer)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_twin_of_a_static_member_fences_it(asking: Asker) -> None:
    group = unique("g")
    first = joined(asking, group, group_instance_id="i")
    assert first.member_id.startswith("i-")
    asking.ask(sync(group, first, group_instance_id="i"))
    second = joined(asking, group, group_instance_id="i")
    assert (second.generation_id, second.skip_assignment) == (first.generation_id, True)
    fenced = heartbeat(group, first)
    fenced.group_instance_id = "i"
    assert asking.ask(fenced).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_members_wait_for_one_another(kafka: KafkaGateway, asking: Asker) -> None:
    group = unique("g")
    first = joined(asking, group)
    asking.ask(sync(group, first))
    found: list[Any] = []
    with asker(kafka.port) as other:
        waiting = Thread(target=lambda: found.append(joined(other, group)))
        waiting.start()
        while asking.ask(heartbeat(group, first)).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        again = asking.ask(join(group, first.member_id))
        waiting.join()
    (second,) = found
    assert again.generation_id == second.generation_id == 2
    assert sorted(each.member_id for each in again.members) == sorted([again.member_id, second.member_id])
    assert second.members == []


def test_the_coordinator_is_found(kafka: KafkaGateway, asking: Asker) -> None:
    for version in range(7):
        keys = ["one", "two", "two"] if version >= 4 else []
        found = asking.ask(FindCoordinatorRequest(key="one", coordinator_keys=keys), version)
        each = found.coordinators if version >= 4 else [found]
        assert [(one.error_code, one.node_id, one.port) for one in each] == [
            (ErrorCode.NONE, 1, kafka.port)
        ] * (2 if version >= 4 else 1)
    for kind, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REQUEST)):
        (found,) = asking.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["t"])).coordinators
        assert found.error_code == code


def test_groups_are_listed_described_and_deleted(asking: Asker) -> None:
    group = unique("g")
    answer = joined(asking, group)
    asking.ask(sync(group, answer))
    for version in range(7):
        (found,) = asking.ask(DescribeGroupsRequest(groups=[group, group]), version).groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = found.members
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert member.member_assignment == encode_assignment([TopicPartition(f"topic-{group}", 0)])
        (none,) = asking.ask(DescribeGroupsRequest(groups=["none"]), version).groups
        code = ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else ErrorCode.NONE
        assert (none.group_state, none.error_code) == ("Dead", code)
    for states, seen in (([], True), (["Stable"], True), (["Empty"], False)):
        listed = asking.ask(ListGroupsRequest(states_filter=states)).groups
        assert (group in [each.group_id for each in listed]) is seen
    delete = DeleteGroupsRequest(groups_names=[group, "none"])
    refused = asking.ask(delete).results
    codes = [each.error_code for each in refused]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    assert all(each.error_message for each in refused)
    asking.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=answer.member_id)]))
    assert asking.ask(delete).results[0].error_code == ErrorCode.NONE


def test_a_group_of_consumer_instances_is_seen_and_joined(kafka: KafkaGateway, asking: Asker) -> None:
    group = unique("g")
    topic = kafka.create_topic(f"topic-{group}", 2)
    client, headers = kafka.running.client, {"Content-Type": "application/vnd.kafka.v2+json"}
    made = client.post(f"/consumers/{group}", json={"name": "one", "format": "binary"}, headers=headers)
    assert made.status_code == 200, made.text
    at = f"/consumers/{group}/instances/one"
    client.post(f"{at}/subscription", json={"topics": [topic]}, headers=headers)
    client.get(f"{at}/records", headers={"Accept": "application/vnd.kafka.binary.v2+json"})
    (found,) = asking.ask(DescribeGroupsRequest(groups=[group])).groups
    (member,) = found.members
    assert member.member_assignment == encode_assignment(TopicPartition(topic, n) for n in range(2))
    other = joined(asking, group, protocol_type="connect")
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = joined(asking, group)
    assert answer.error_code == ErrorCode.NONE
    client.delete(at)  # the other goes on alone, by the classic protocol
    assert asking.ask(heartbeat(group, answer)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    cluster = kafka.running.cluster
    shown = client.get(f"{cluster}/consumer-groups/{group}/consumers").json()["data"]
    assert [(each["consumer_id"], each["client_id"], each["host"]) for each in shown] == [
        (answer.member_id, "test", "127.0.0.1")
    ]


def test_a_client_makes_no_lines_of_its_own_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with kafka_served(tmp_path) as here, asker(here.port) as asking:
        assert joined(asking, unique("g"), reason="none\nERROR made up\x1b[31m").error_code == ErrorCode.NONE
    said = [each.getMessage() for each in caplog.records if "classic group" in each.getMessage()]
    assert said
    assert [line for line in said if not line.isprintable()] == []


def test_what_is_not_offered_makes_one_line_however_often_it_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [f"group:topic:{number}" for number in range(100)]
    with kafka_served(tmp_path) as here, asker(here.port) as asking:
        for _ in range(2):
            asking.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys))
    (line,) = [each.getMessage() for each in caplog.records if "asks for" in each.getMessage()]
    assert "share groups ('group:topic:0')" in line


def test_an_address_is_warned_of_again_after_a_minute() -> None:
    warned = Seldom[str](60, 1_000)
    assert [warned.is_due("a", now) for now in (0, 59, 60, 61, 120)] == [True, False, True, False, True]
    assert warned.is_due("b", 120)
    crowd = [warned.is_due(f"{number}", 121) for number in range(1_000)]
    assert crowd.count(False) == 2
    assert warned.is_due("late", 300)


def test_clients_that_only_ask_for_member_ids_keep_nobody_out(tmp_path: Path) -> None:
    """They are no members, and the oldest of them give way to new ones; members are bounded as ever."""
    with kafka_served(tmp_path, consumer_instances_max=3) as here, asker(here.port) as asking:
        crowd = [unique("g")] * 4 + [unique("g") for _ in range(4)]
        given = [asking.ask(join(group)) for group in crowd]
        assert {each.error_code for each in given} == {ErrorCode.MEMBER_ID_REQUIRED}
        late = asking.ask(join(crowd[0], given[0].member_id))
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        groups = [unique("g") for _ in range(3)]
        assert [joined(asking, group).error_code for group in groups] == [ErrorCode.NONE] * 3
        assert asking.ask(join(unique("g"))).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        last = asking.ask(join(crowd[-1], given[-1].member_id))
        assert last.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_many_groups_are_deleted_by_one_request(kafka: KafkaGateway, asking: Asker) -> None:
    """More than are deleted side by side; every other one does not exist."""
    names, topic = [unique("g") for _ in range(150)], kafka.create_topic(unique("t"))
    parts = [OffsetCommitRequestPartition(partition_index=0)]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=parts)]
    for name in names[::2]:
        asking.send(OffsetCommitRequest(group_id=name, topics=topics), 9)
    for _ in names[::2]:
        answer = asking.answer(OffsetCommitRequest, 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    results = asking.ask(DeleteGroupsRequest(groups_names=names)).results
    codes = [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND] * 75
    assert [(each.group_id, each.error_code) for each in results] == [*zip(names, codes, strict=True)]
