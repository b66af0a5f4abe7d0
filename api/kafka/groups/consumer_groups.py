"""Groups whose partitions the coordinator assigns (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Instances of the HTTP API are members of these groups, too. Topics have ids here: of a re-created topic a
member holds nothing until it is given the new one.
"""

from collections.abc import Iterable

from api.client_topics import known_name_of
from api.kafka.clients.client import Client, authorized_operations
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, group_error_code
from api.kafka.groups.group_admin import seen_topics
from api.kafka.groups.members import check_instance
from api.kafka.protocol.messages.groups import (
    AssignedTopicPartitions,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    DescribedAssignment,
    DescribedConsumerGroup,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from api.kafka.protocol.notation import has_more
from coordinator.groups.events import LEAVES_FOR_A_WHILE, ConsumerHeartbeat
from coordinator.groups.state.group import Group, GroupType
from coordinator.groups.state.member import NOTHING, Member
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import NAME_MAX_CHARS, KafkaClient, check_group_name
from log_tables.errors import AuthorizationFailed, InvalidArgument, LakelogError, UnsupportedAssignor
from log_tables.limits import KAFKA_INLINE_ELEMENTS
from log_tables.topic_partition import TopicPartition

STRATEGIES = {"uniform": "sticky", "range": "range"}
"""The assignors of KIP-848, and what they are here."""

_ASSIGNORS = {ours: theirs for theirs, ours in STRATEGIES.items()}

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Types of members in ConsumerGroupDescribe."""


async def consumer_group_heartbeat(
    door: Door, client: Client, request: ConsumerGroupHeartbeatRequest, _version: int
) -> ConsumerGroupHeartbeatResponse:
    """A member joins, is alive or leaves, and hears of its partitions."""
    code = None
    try:
        client.caller.check(Operation.READ, ResourceType.GROUP, request.group_id)
        if any(not client.caller.describes(name) for name in request.subscribed_topic_names or ()):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise AuthorizationFailed("the principal may not describe all the topics")
        await _learn_of(door, request.topic_partitions or ())
        is_wide = has_more(request, KAFKA_INLINE_ELEMENTS)
        event = await door.here.loop_share.maybe_in_thread(is_wide, lambda: _event(door, client, request))
        heard = await door.here.classic.consumer_heartbeat(request.group_id, event)
    except LakelogError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=code or group_error_code(error), error_message=error.message
        )
    assignment = None
    if heard.assignment is not None:
        assignment = HeartbeatAssignment(
            topic_partitions=[
                HeartbeatTopicPartitions(topic_id=bytes.fromhex(topic_id), partitions=[*partitions])
                for topic_id, partitions in heard.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=heard.member_id,
        member_epoch=heard.epoch,
        heartbeat_interval_ms=heard.interval_ms,
        assignment=assignment,
    )


def _event(door: Door, client: Client, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    """Raises InvalidArgument, InvalidConsumer, UnsupportedAssignor for a request that cannot be."""
    check_group_name(request.group_id)
    check_instance(request.instance_id)
    _check_shape(request)
    return ConsumerHeartbeat(
        member_id=request.member_id or door.here.clock.unique_id(),
        epoch=request.member_epoch,
        client=KafkaClient(client.id, client.host, request.instance_id, request.rack_id or ""),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        pattern=request.subscribed_topic_regex,
        assignor=None if request.server_assignor is None else STRATEGIES[request.server_assignor],
        owned=None if request.topic_partitions is None else _held(door, request.topic_partitions),
        context=client.caller.identified,
    )


def _check_shape(request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise InvalidArgument, as Kafka does, for fields that do not go together."""
    name, epoch = request.member_id, request.member_epoch
    if epoch < LEAVES_FOR_A_WHILE:
        raise InvalidArgument(f"{epoch} is no member epoch; send -2, -1, 0 or the one that was given")
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        raise InvalidArgument("only a member with a group.instance.id leaves for a while; send epoch -1")
    if not (name or epoch == 0) or len(name) > NAME_MAX_CHARS or not name.isprintable():
        raise InvalidArgument(
            f"the member id {name[:40]!r} cannot be used; send up to {NAME_MAX_CHARS} printable characters"
        )
    if request.server_assignor is not None and request.server_assignor not in STRATEGIES:
        raise UnsupportedAssignor(
            f"the assignor {request.server_assignor[:40]!r} is not known; use {' or '.join(STRATEGIES)}"
        )
    if epoch == 0:
        if request.rebalance_timeout_ms < 0:
            raise InvalidArgument("a member that joins names its rebalance timeout; send one from 0")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidArgument("a member that joins holds no partitions; send an empty list")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidArgument("a member that joins subscribes; send names, or none of them, or a regex")


async def _learn_of(door: Door, held: Iterable[HeartbeatTopicPartitions]) -> None:
    """Look for topics that are not known here and may be new: others would be given what the member reads
    on.
    """
    if any(known_name_of(door.here, each.topic_id.hex()) is None for each in held):
        await door.here.shard_manager.refresh_topics()


def _held(door: Door, listed: Iterable[HeartbeatTopicPartitions]) -> frozenset[TopicPartition]:
    """The partitions that are there: of a topic that is deleted nobody holds any."""
    names = ((known_name_of(door.here, each.topic_id.hex()), each.partitions) for each in listed)
    return frozenset(TopicPartition(name, p) for name, partitions in names if name for p in partitions)


async def consumer_group_describe(
    door: Door, client: Client, request: ConsumerGroupDescribeRequest, _version: int
) -> ConsumerGroupDescribeResponse:
    """Groups as their coordinators have them; those of another gateway as they were written last."""

    async def described(name: str) -> DescribedConsumerGroup:
        return await _described(door, client, name, request.include_authorized_operations)

    found = await door.here.loop_share.results(described, [*dict.fromkeys(request.group_ids)])
    return ConsumerGroupDescribeResponse(groups=found)


async def _described(door: Door, client: Client, name: str, operations: bool) -> DescribedConsumerGroup:
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.GROUP, name)
        group = await door.here.classic.group(name)
    except LakelogError as error:
        code = group_error_code(error)
        return DescribedConsumerGroup(group_id=name, error_code=code, error_message=error.message)
    if not group.exists or group.type is not GroupType.CONSUMER:
        # Java's clients then ask by DescribeGroups.
        kind = "consumer group" if not group.exists else f"group of type {GroupType.CONSUMER}"
        return DescribedConsumerGroup(
            group_id=name,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"there is no {kind} {name!r}",
        )
    members = [group.members[key] for key in sorted(group.members)]
    seen = seen_topics(client, group)
    return DescribedConsumerGroup(
        group_id=name,
        group_state=group.consumer_state,
        group_epoch=group.generation,
        assignment_epoch=group.assignment_epoch,
        assignor_name=_ASSIGNORS.get(group.strategy, group.strategy),
        members=[_member(group, each, seen) async for each in door.here.loop_share.each(members)],
        authorized_operations=authorized_operations(client, ResourceType.GROUP, name, asked=operations),
    )


def _member(group: Group, member: Member, seen: frozenset[str]) -> ConsumerGroupMember:
    client = member.client
    return ConsumerGroupMember(
        member_id=member.id,
        instance_id=client.instance_id,
        rack_id=client.rack_id or None,
        member_epoch=LEAVES_FOR_A_WHILE if member.away else member.epoch,
        client_id=client.client_id,
        client_host=f"/{client.host}",
        subscribed_topic_names=sorted(member.topics & seen),
        subscribed_topic_regex=member.pattern or None,
        assignment=_assignment(group, member.assignment, seen),
        target_assignment=_assignment(group, group.target.get(member.id, NOTHING), seen),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(
    group: Group, partitions: Iterable[TopicPartition], seen: frozenset[str]
) -> DescribedAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return DescribedAssignment(
        topic_partitions=[
            AssignedTopicPartitions(
                topic_id=bytes.fromhex(group.topics[topic].topic_id), topic_name=topic, partitions=listed
            )
            for topic, listed in by_topic.items()
            if topic in group.topics and topic in seen
        ]
    )
