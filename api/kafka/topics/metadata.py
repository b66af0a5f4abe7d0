"""Metadata: the gateways, and who leads which partition; it makes topics that are asked for by name."""

import asyncio

from api.client_topics import TopicDescription, describe_topics, name_of, topic_description
from api.kafka.clients.authorized_operations import authorized_operations
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from api.kafka.topics.new_topic import asked_topic
from coordinator.access.host import host_and_port
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import check_readable, is_internal
from log_tables.errors import LakelogError, UnknownTopic

NO_ID = bytes(16)


async def metadata(door: Door, client: Client, request: MetadataRequest, version: int) -> MetadataResponse:
    """A partition that nobody leads has the leader that will claim it: a client hears of no leader −1."""
    wanted = request.topics
    if wanted is None or (version == 0 and not wanted):
        found = await asyncio.to_thread(describe_topics, door.here)
        seen = [each for each in found if client.sees(ResourceType.TOPIC, each.name)]
        topics = [_described(door, each) for each in seen]
    else:
        create = (version < 4 or request.allow_auto_topic_creation) and (
            door.here.settings.auto_create_topics_enable
        )
        topics = [await _asked(door, client, each, create) for each in wanted]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                may = authorized_operations(client, ResourceType.TOPIC, topic.name)
                topic.topic_authorized_operations = may
    asked = request.include_cluster_authorized_operations
    brokers = door.brokers()
    return MetadataResponse(
        brokers=[broker_of(each.id, each.kafka) for each in brokers],
        cluster_id=door.here.cluster.cluster_id,
        controller_id=door.here.brokers.id,
        topics=topics,
        cluster_authorized_operations=authorized_operations(client, ResourceType.CLUSTER, asked=asked),
    )


def broker_of(number: int, address: str) -> MetadataResponseBroker:
    """A gateway and where Kafka's clients reach it."""
    host, port = host_and_port(address)
    return MetadataResponseBroker(node_id=number, host=host, port=port)


async def _asked(
    door: Door, client: Client, wanted: MetadataRequestTopic, create: bool
) -> MetadataResponseTopic:
    name = wanted.name
    try:
        if name is None:
            return await _by_id(door, client, wanted.topic_id)
        if not client.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        check_readable(name)
        try:
            return _described(door, await topic_description(door.here, name))
        except UnknownTopic:
            if not create or is_internal(name):  # the audit log, which is made with its first event
                raise
        return _described(door, await asked_topic(door, client, name))
    except (LakelogError, Refusal) as error:
        return _refused(name, said(error)[0], wanted.topic_id)


async def _by_id(door: Door, client: Client, topic_id: bytes) -> MetadataResponseTopic:
    name = await name_of(door.here, topic_id.hex())
    if name is None or not client.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    return _described(door, await topic_description(door.here, name))


def _refused(name: str | None, code: ErrorCode, topic_id: bytes = NO_ID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=False)


def _described(door: Door, topic: TopicDescription) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=NO_LEADER_EPOCH,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for number, leader in enumerate(door.leaders(topic))
        ],
    )
