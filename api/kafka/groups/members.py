"""The members of groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-345, KIP-394).

A request for a group that another gateway coordinates is forwarded, after its client was allowed it here.
"""

from collections.abc import Awaitable, Callable, Mapping

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, group_error_code
from api.kafka.protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from coordinator.access.host import host_and_port
from coordinator.groups.classic.events import GroupHeartbeat, JoinGroup, LeaveGroup, LeftMember, SyncGroup
from ingest.loop_share import batched
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import NAME_MAX_CHARS
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import InvalidArgument, LakelogError, MemberIdRequired

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types in FindCoordinator; others are of share groups."""

NO_BROKER = -1

_NOT_OFFERED = "are not offered over Kafka's protocol"

CLIENT_ID_MAX_CHARS = 200
"""As much of a client's id becomes a part of the ids of its members."""

MEMBER_ID_REQUIRED_SINCE = 4
"""The version of JoinGroup from which on a new member comes twice (KIP-394)."""

NULL_PROTOCOL_SINCE = 7
"""The version of JoinGroup from which on an answer may name no protocol."""

SKIP_ASSIGNMENT_SINCE = 9
"""The version of JoinGroup from which on a leader may be told to assign nothing (KIP-814)."""

MANY_SINCE = 3
"""The version of LeaveGroup from which on many may leave at once."""


async def find_coordinator(
    door: Door, client: Client, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    """The gateway that coordinates each group, or will."""
    keys = [*dict.fromkeys(request.coordinator_keys)] if version >= 4 else [request.key]
    if request.key_type == SHARE and keys:
        door.warn(client, "share groups", keys[0])
    found = [
        await _coordinator(door, client, key, request.key_type)
        async for key in door.here.loop_share.each(keys)
    ]
    if version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(
        error_code=found[0].error_code,
        error_message=found[0].error_message,
        node_id=found[0].node_id,
        host=found[0].host,
        port=found[0].port,
    )


async def _coordinator(door: Door, client: Client, key: str, kind: int) -> Coordinator:
    if kind not in (GROUP, TRANSACTION):
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"share groups {_NOT_OFFERED}")
    resource, what, denied, find = _KINDS[kind]
    if not client.caller.may(Operation.DESCRIBE, resource, key):
        return _nobody(key, denied, f"the principal may not describe the {what}")
    here = door.here.brokers
    try:
        leader = await find(door, key)
    except LakelogError as error:
        return _nobody(key, group_error_code(error), error.message)
    gateway = here.all().get(here.id) if leader is None else leader
    broker = None if gateway is None else door.node_of(gateway)
    if broker is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator has no Kafka listener")
    host, port = host_and_port(broker.kafka)
    return Coordinator(key=key, node_id=broker.id, host=host, port=port)


_Find = Callable[[Door, str], Awaitable[BrokerRecord | None]]

_KINDS: Mapping[int, tuple[ResourceType, str, ErrorCode, _Find]] = {
    GROUP: (
        ResourceType.GROUP,
        "group",
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        lambda door, key: door.here.classic.coordinator_of(key),
    ),
    TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        "transactional id",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        lambda door, key: door.here.producers.coordinator_of(key),
    ),
}


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_BROKER, port=-1, error_code=code, error_message=message)


async def join_group(
    door: Door, client: Client, request: JoinGroupRequest, version: int
) -> JoinGroupResponse:
    """The answer comes when all members have joined."""
    try:
        client.caller.check(Operation.READ, ResourceType.GROUP, request.group_id)
        check_instance(request.group_instance_id)
        instance_id = request.group_instance_id
        origin = client.id[:CLIENT_ID_MAX_CHARS] if instance_id is None else instance_id
        event = JoinGroup(
            new_member_id=f"{origin}-{door.here.clock.unique_id()}",
            member_id=request.member_id,
            instance_id=instance_id,
            client_id=client.id,
            client_host=client.host,
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            requires_known_member_id=version >= MEMBER_ID_REQUIRED_SINCE,
            skips_assignment=version >= SKIP_ASSIGNMENT_SINCE,
            reason=request.reason or "",
            context=client.caller.identified,
        )
        joined = await door.here.classic.join(request.group_id, event)
    except LakelogError as error:
        given = error.details["member_id"] if isinstance(error, MemberIdRequired) else request.member_id
        return JoinGroupResponse(
            error_code=group_error_code(error),
            protocol_name=None if version >= NULL_PROTOCOL_SINCE else "",
            member_id=str(given),
        )
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in joined.members
        ],
    )


async def sync_group(
    door: Door, client: Client, request: SyncGroupRequest, _version: int
) -> SyncGroupResponse:
    """The answer comes when the leader has assigned."""
    try:
        client.caller.check(Operation.READ, ResourceType.GROUP, request.group_id)
        event = SyncGroup(
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
        found = await door.here.classic.sync(request.group_id, event)
    except LakelogError as error:
        return SyncGroupResponse(error_code=group_error_code(error))
    return SyncGroupResponse(
        protocol_type=found.protocol_type, protocol_name=found.protocol, assignment=found.assignment
    )


async def heartbeat(
    door: Door, client: Client, request: HeartbeatRequest, _version: int
) -> HeartbeatResponse:
    """A member hears of a rebalance."""
    try:
        client.caller.check(Operation.READ, ResourceType.GROUP, request.group_id)
        event = GroupHeartbeat(request.member_id, request.generation_id, request.group_instance_id)
        await door.here.classic.heartbeat(request.group_id, event)
    except LakelogError as error:
        return HeartbeatResponse(error_code=group_error_code(error))
    return HeartbeatResponse()


async def leave_group(
    door: Door, client: Client, request: LeaveGroupRequest, version: int
) -> LeaveGroupResponse:
    """Each of the members that leave has a code of its own."""
    share = door.here.loop_share
    asked = request.members if version >= MANY_SINCE else [MemberIdentity(member_id=request.member_id)]
    codes: list[ErrorCode] = []
    try:
        client.caller.check(Operation.READ, ResourceType.GROUP, request.group_id)
        async for some in share.each(batched(asked) if asked else [asked]):
            left = (LeftMember(each.member_id, each.group_instance_id, each.reason or "") for each in some)
            answer = await door.here.classic.leave(request.group_id, LeaveGroup(tuple(left)))
            codes += [ErrorCode.NONE if error is None else group_error_code(error) for error in answer.errors]
    except LakelogError as error:
        if not codes:
            return LeaveGroupResponse(error_code=group_error_code(error))
        codes += [group_error_code(error)] * (len(asked) - len(codes))  # the first ones have left
    if version < MANY_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            async for each, code in share.each(zip(asked, codes, strict=True))
        ]
    )


def check_instance(instance_id: str | None) -> None:
    """Raise InvalidArgument for a text that cannot be a group instance id."""
    if instance_id is not None and not (
        1 <= len(instance_id) <= NAME_MAX_CHARS and instance_id.isprintable()
    ):
        raise InvalidArgument(
            f"the group.instance.id {instance_id[:40]!r} cannot be used; use 1 to {NAME_MAX_CHARS} printable "
            "characters"
        )
