"""Groups as administrators see them: DescribeGroups, ListGroups, DeleteGroups.

A group of the HTTP API's consumer instances is shown as a group of consumers, each with its partitions in the
form in which Kafka's clients read them.
"""

from collections.abc import Iterator
from functools import partial

from api.kafka.clients.client import Client, authorized_operations
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, group_error_code
from api.kafka.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.consumer_protocol import encode_assignment, encode_subscription
from coordinator.groups.state.group import Group, GroupType
from coordinator.groups.state.member import NOTHING
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import LakelogError

UNKNOWN_SINCE = 6
"""The version of DescribeGroups from which on an unknown group is an error, and not one that is dead."""


async def describe_groups(
    door: Door, client: Client, request: DescribeGroupsRequest, version: int
) -> DescribeGroupsResponse:
    """Groups as their coordinators have them; those of another gateway as they were written last."""

    async def described(name: str) -> DescribedGroup:
        return await _described(door, client, name, version, request.include_authorized_operations)

    found = await door.here.loop_share.results(described, [*dict.fromkeys(request.groups)])
    return DescribeGroupsResponse(groups=found)


async def _described(door: Door, client: Client, name: str, version: int, operations: bool) -> DescribedGroup:
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.GROUP, name)
        group = await door.here.classic.group(name)
    except LakelogError as error:
        return DescribedGroup(group_id=name, error_code=group_error_code(error), error_message=error.message)
    if not group.exists and version >= UNKNOWN_SINCE:
        return DescribedGroup(
            group_id=name,
            group_state=ClassicState.DEAD,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"there is no consumer group {name!r}",
        )
    stable = group.state is ClassicState.STABLE
    members = _members(group, stable, seen_topics(client, group) if group.members else frozenset())
    return DescribedGroup(
        group_id=name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.assignor if stable else "",
        members=[each async for each in door.here.loop_share.each(members)],
        authorized_operations=authorized_operations(client, ResourceType.GROUP, name, asked=operations),
    )


def seen_topics(client: Client, group: Group) -> frozenset[str]:
    """The topics of a group's members that `client` may know of. Kafka refuses the whole group instead."""
    targets = (group.target.get(name, NOTHING) for name in group.members)
    named = {at.topic for given in targets for at in given} | (group.subscribed_topics or frozenset())
    named |= {at.topic for member in group.members.values() for at in member.owned}
    return frozenset(filter(client.caller.describes, named))


def _members(group: Group, stable: bool, seen: frozenset[str]) -> Iterator[DescribedGroupMember]:
    """A member has metadata and an assignment while the group is stable, as in Kafka; where they are ours,
    with the topics that are `seen`.
    """
    for each in group.group_members:
        instance_id, classic = each.instance_id, group.classic.members.get(each.id)
        if classic is not None:
            metadata, assignment = classic.metadata(group.classic.protocol), classic.assignment
        else:
            ours = group.members[each.id]
            instance_id = ours.client.instance_id
            topics = group.subscription(ours) & seen
            owned = [at for at in each.owned or () if at.topic in seen]
            metadata, assignment = encode_subscription(topics), encode_assignment(owned)
        yield DescribedGroupMember(
            member_id=each.id,
            group_instance_id=instance_id,
            client_id=each.client_id,
            client_host=f"/{each.host}",
            member_metadata=metadata if stable else b"",
            member_assignment=assignment if stable else b"",
        )


async def list_groups(
    door: Door, client: Client, request: ListGroupsRequest, _version: int
) -> ListGroupsResponse:
    """The groups that this gateway coordinates, and those of nobody that it would: clients ask them all."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        groups = await door.here.shard_manager.groups_here()
    except LakelogError as error:
        return ListGroupsResponse(error_code=group_error_code(error))
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type,
                group_state=_state(group),
                group_type=group.type,
            )
            async for group in door.here.loop_share.each(groups)
            if (not states or _state(group).lower() in states)
            and (not types or group.type in types)
            and client.caller.allows(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        ]
    )


def _state(group: Group) -> str:
    """Its state by the names of its type, as in a description of it."""
    return group.consumer_state if group.type is GroupType.CONSUMER else group.state


async def delete_groups(
    door: Door, client: Client, request: DeleteGroupsRequest, _version: int
) -> DeleteGroupsResponse:
    """Only groups without members. Each is durably gone before the answer, so some go at once, and their
    records are written together.
    """
    names = [*dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(
        results=await door.here.loop_share.results(partial(_deleted, door, client), names)
    )


async def _deleted(door: Door, client: Client, name: str) -> DeletableGroupResult:
    try:
        client.caller.check(Operation.DELETE, ResourceType.GROUP, name)
        with client.caller.changing("DeleteGroups", ResourceType.GROUP, name):
            await door.here.classic.delete(name, client.caller.identified)
    except LakelogError as error:
        return DeletableGroupResult(
            group_id=name, error_code=group_error_code(error), error_message=error.message
        )
    return DeletableGroupResult(group_id=name)
