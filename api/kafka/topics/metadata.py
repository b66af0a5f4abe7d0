"""Metadata: the gateways, and who leads which partition; it makes topics that are asked for by name.

Of the cluster as a whole there are the gateways alone (DescribeCluster, KIP-700).
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from api.client_topics import (
    TopicDescription,
    describe_named,
    describe_topics,
    know_ids,
    known_description,
    known_name_of,
    topic_description,
)
from api.kafka.clients.client import Client, authorized_operations
from api.kafka.clients.door import Door, in_thread
from api.kafka.clients.errors import ErrorCode, said
from api.kafka.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from api.topic_changes import create_topic
from coordinator.access.host import host_and_port
from coordinator.access.pending_requests import requests_of
from coordinator.access.quota_manager import QuotaKind
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import check_readable, check_topic_name, is_internal
from log_tables.errors import LakelogError, TopicExists
from log_tables.limits import AUTO_CREATED_MAX, KAFKA_INLINE_ELEMENTS

NO_ID = bytes(16)

BROKERS, CONTROLLERS = 1, 2
"""The kinds of endpoints (KIP-919)."""


async def metadata(door: Door, client: Client, request: MetadataRequest, version: int) -> MetadataResponse:
    """A partition that nobody leads has the leader that will claim it: a client hears of no leader −1."""
    wanted = request.topics
    operations = request.include_topic_authorized_operations
    if wanted is None or (version == 0 and not wanted):
        listed = await asyncio.to_thread(describe_topics, door.here)
        seen = door.here.loop_share.in_thread(
            lambda: [each for each in listed if client.caller.describes(each.name)]
        )
        all_topics = await seen
        partitions = sum(each.partition_count for each in all_topics)
        client.charge(QuotaKind.REQUESTS, requests_of(0, len(all_topics) + partitions) - 1)
        found: dict[_Key, TopicDescription | ErrorCode] = {(each.name, NO_ID): each for each in all_topics}
        topics = await _answered(door, client, found, operations)
    else:
        create = (version < 4 or request.allow_auto_topic_creation) and (
            door.here.settings.auto_create_topics_enable
        )
        topics = await _answered(door, client, await _asked(door, client, wanted, create), operations)
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[_broker(each) for each in door.brokers()],
        cluster_id=door.here.cluster.cluster_id,
        controller_id=door.node_id,
        topics=topics,
        cluster_authorized_operations=authorized_operations(client, ResourceType.CLUSTER, asked=asked),
    )


def _broker(record: BrokerRecord) -> MetadataResponseBroker:
    """A gateway, and where Kafka's clients reach it."""
    host, port = host_and_port(record.kafka)
    return MetadataResponseBroker(node_id=record.id, host=host, port=port, rack=record.rack or None)


_Key = tuple[str | None, bytes]
"""The name of a topic, or without one its id."""


def _key(wanted: MetadataRequestTopic) -> _Key:
    """Java names no topic by an empty text where it means one by its id."""
    by_id = wanted.name is None or wanted.topic_id != NO_ID
    return (None, wanted.topic_id) if by_id else (wanted.name, NO_ID)


async def _asked(
    door: Door, client: Client, wanted: Iterable[MetadataRequestTopic], create: bool
) -> dict[_Key, TopicDescription | ErrorCode]:
    """Each topic that is asked for, once, or why there is none."""
    found: dict[_Key, TopicDescription | ErrorCode] = {}
    missing: dict[str, None] = {}
    await know_ids(door.here, (each.topic_id.hex() for each in wanted if _key(each)[0] is None))
    async for each in door.here.loop_share.each(wanted):
        key = asked, topic_id = _key(each)
        if key in found:
            continue
        name = known_name_of(door.here, topic_id.hex()) if asked is None else asked
        found[key] = ErrorCode.UNKNOWN_TOPIC_ID if asked is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name is None or not client.caller.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        code = ErrorCode.NONE if asked is None else _unreadable(name)
        found[key] = code or known_description(door.here, name) or ErrorCode.UNKNOWN_TOPIC_ID
        if asked is not None and found[key] is ErrorCode.UNKNOWN_TOPIC_ID:
            missing[name] = None
    if missing:
        looked_up = await asyncio.to_thread(describe_named, door.here, missing)
        left = AUTO_CREATED_MAX
        async for name in door.here.loop_share.each(missing):
            found[name, NO_ID] = looked_up.get(name) or _refusal(client, name, create)
            if found[name, NO_ID] is ErrorCode.NONE:
                found[name, NO_ID] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if left > 0:
                    left -= 1
                    found[name, NO_ID] = await _made(door, client, name)
    return found


def _unreadable(name: str) -> ErrorCode:
    """Why clients hear nothing of a topic of this name; NONE if they may."""
    try:
        check_readable(name)
    except LakelogError as error:
        return said(error)[0]
    return ErrorCode.NONE


def _refusal(client: Client, name: str, create: bool) -> ErrorCode:
    """Why an unknown topic is not made for a client that asks for its metadata; NONE if it may be."""
    if not create or is_internal(name):  # the audit log, which is made with its first event
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
        client.caller.check_create(name)
    except LakelogError as error:
        return said(error)[0]
    return ErrorCode.NONE


async def _made(door: Door, client: Client, name: str) -> TopicDescription | ErrorCode:
    try:
        return await _asked_topic(door, client, name)
    except LakelogError as error:
        return said(error)[0]


async def _asked_topic(door: Door, client: Client, name: str) -> TopicDescription:
    """The topic that a client has asked for by name, made with the settings of the gateway. Raises as
    `create_topic`.
    """
    make = partial(create_topic, door.here, client.caller, name, door.here.settings.num_partitions, {})
    try:
        return await in_thread(door, make)
    except TopicExists:  # somebody else has asked for it, too
        return await topic_description(door.here, name)


def _refused(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=False)


async def _answered(
    door: Door, client: Client, found: Mapping[_Key, TopicDescription | ErrorCode], operations: bool
) -> list[MetadataResponseTopic]:
    """The topics that are there with all partitions, then the others. With what the client may do with each,
    if `operations` are wanted.
    """

    def answer() -> list[MetadataResponseTopic]:
        there = (each for each in found.values() if isinstance(each, TopicDescription))
        racks, epoch = door.read_replicas(), door.leader_epoch
        described = [
            _answer(client, topic, racks.each(topic.topic_id, leaders), epoch, operations)
            for topic, leaders in door.leaders(there)
        ]
        return described + [
            _refused(*key, code) for key, code in found.items() if isinstance(code, ErrorCode)
        ]

    is_wide = (
        len(found) > KAFKA_INLINE_ELEMENTS
        or sum(each.partition_count for each in found.values() if isinstance(each, TopicDescription))
        > KAFKA_INLINE_ELEMENTS
    )
    return await door.here.loop_share.maybe_in_thread(is_wide, answer)


def _answer(
    client: Client, topic: TopicDescription, replicas: Iterable[list[int]], epoch: int, operations: bool
) -> MetadataResponseTopic:
    """`replicas` are of each partition: first the leader."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal(topic.name),
        topic_authorized_operations=authorized_operations(
            client, ResourceType.TOPIC, topic.name, asked=operations
        ),
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=numbers[0],
                leader_epoch=epoch,
                replica_nodes=numbers,
                isr_nodes=numbers,
            )
            for number, numbers in enumerate(replicas)
        ],
    )


async def describe_cluster(
    door: Door, client: Client, request: DescribeClusterRequest, _version: int
) -> DescribeClusterResponse:
    """There are no controllers: any gateway does their work. Fenced are those that are silent."""
    kind, asked = request.endpoint_type, request.include_cluster_authorized_operations
    if kind != BROKERS:
        known = kind == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = "a gateway is a broker; ask it for endpoints of type 1"
        return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=kind)
    living = door.brokers()
    reached = {each.kafka for each in living}
    silent = [each for each in door.here.brokers.all().values() if each.kafka and each.kafka not in reached]
    brokers = []
    for each in [*living, *silent]:
        fenced = each.kafka not in reached
        if not fenced or request.include_fenced_brokers:
            host, port = host_and_port(each.kafka)
            brokers.append(
                DescribeClusterBroker(
                    broker_id=each.id, host=host, port=port, rack=each.rack or None, is_fenced=fenced
                )
            )
    return DescribeClusterResponse(
        endpoint_type=kind,
        cluster_id=door.here.cluster.cluster_id,
        controller_id=door.node_id,
        brokers=brokers,
        cluster_authorized_operations=authorized_operations(client, ResourceType.CLUSTER, asked=asked),
    )
