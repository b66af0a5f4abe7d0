"""Consumer groups: the broker that one belongs to, their members, and their administration."""

from typing import Annotated

import msgspec

from api.kafka.protocol.notation import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Message,
    Nullable,
    Struct,
    Uuid,
    Versions,
)


class FindCoordinatorRequest(Message):
    versions = Versions(0, 6)
    first_flexible = 3

    key: Annotated[str, Versions(0, 3)] = ""
    key_type: Annotated[Int8, Versions(1)] = 0
    coordinator_keys: Annotated[list[str], Versions(4)] = []


class Coordinator(Struct):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(Message):
    versions = Versions(0, 6)
    first_flexible = 3

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Annotated[Int16, Versions(0, 3)] = 0
    error_message: Annotated[str | None, Versions(1, 3)] = ""
    node_id: Annotated[Int32, Versions(0, 3)] = 0
    host: Annotated[str, Versions(0, 3)] = ""
    port: Annotated[Int32, Versions(0, 3)] = 0
    coordinators: Annotated[list[Coordinator], Versions(4)] = []


class JoinGroupRequestProtocol(Struct):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(Message):
    versions = Versions(0, 9)
    first_flexible = 6

    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Versions(1)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(5)] = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, Versions(8)] = None


class JoinGroupResponseMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(5)] = None
    metadata: bytes = b""


class JoinGroupResponse(Message):
    versions = Versions(0, 9)
    first_flexible = 6

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Versions(7)] = None
    protocol_name: Annotated[str | None, Nullable(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, Versions(9)] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class SyncGroupRequestAssignment(Struct):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 4

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(3)] = None
    protocol_type: Annotated[str | None, Versions(5)] = None
    protocol_name: Annotated[str | None, Versions(5)] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 4

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, Versions(5)] = None
    protocol_name: Annotated[str | None, Versions(5)] = None
    assignment: bytes = b""


class HeartbeatRequest(Message):
    versions = Versions(0, 4)
    first_flexible = 4

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(3)] = None


class HeartbeatResponse(Message):
    versions = Versions(0, 4)
    first_flexible = 4

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = 0


class MemberIdentity(Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: Annotated[str | None, Versions(5)] = None


class LeaveGroupRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 4

    group_id: str = ""
    member_id: Annotated[str, Versions(0, 2)] = ""
    members: Annotated[list[MemberIdentity], Versions(3)] = []


class MemberResponse(Struct):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 4

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], Versions(3)] = []


class DescribeGroupsRequest(Message):
    versions = Versions(0, 6)
    first_flexible = 5

    groups: list[str] = []
    include_authorized_operations: Annotated[bool, Versions(3)] = False


class DescribedGroupMember(Struct):
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(4)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: Annotated[str | None, Versions(6)] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, Versions(3)] = -(2**31)


class DescribeGroupsResponse(Message):
    versions = Versions(0, 6)
    first_flexible = 5

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    groups: list[DescribedGroup] = []


class ListGroupsRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    states_filter: Annotated[list[str], Versions(4)] = []
    types_filter: Annotated[list[str], Versions(5)] = []


class ListedGroup(Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, Versions(4)] = ""
    group_type: Annotated[str, Versions(5)] = ""


class ListGroupsResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


class HeartbeatTopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, Versions(1)] = None
    server_assignor: str | None = None
    topic_partitions: list[HeartbeatTopicPartitions] | None = None


class HeartbeatAssignment(Struct):
    topic_partitions: list[HeartbeatTopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None


class ConsumerGroupDescribeRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class AssignedTopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []


class DescribedAssignment(Struct):
    topic_partitions: list[AssignedTopicPartitions] = []


class ConsumerGroupMember(Struct):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment = msgspec.field(default_factory=DescribedAssignment)
    target_assignment: DescribedAssignment = msgspec.field(default_factory=DescribedAssignment)
    member_type: Annotated[Int8, Versions(1)] = -1


class DescribedConsumerGroup(Struct):
    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[ConsumerGroupMember] = []
    authorized_operations: Int32 = -(2**31)


class ConsumerGroupDescribeResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup] = []


class DeleteGroupsRequest(Message):
    versions = Versions(0, 3)
    first_flexible = 2

    groups_names: list[str] = []


class DeletableGroupResult(Struct):
    group_id: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, Versions(3)] = None


class DeleteGroupsResponse(Message):
    versions = Versions(0, 3)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
