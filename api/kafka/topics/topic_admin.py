"""CreateTopics, CreatePartitions, DeleteTopics: for each topic of a request an answer of its own.

A topic that is answered without an error is made, grown or gone: the timeout of a request bounds nothing.
"""

from collections.abc import Sequence
from functools import partial

from api.client_topics import current_name_of
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, in_thread, named_once
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from api.kafka.protocol.notation import ZERO_UUID
from api.kafka.topics.config_changes import plain_configs
from api.kafka.topics.configs import ConfigSource
from api.topic_changes import add_partitions, create_topic, delete_topic, plan_creation, plan_growth
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import PARTITIONS_MAX

AS_THE_GATEWAY = -1
"""A number of partitions or replicas that the gateway chooses."""

REPLICATION_FACTOR = 1
"""In all answers: the store keeps the copies."""


async def create_topics(
    door: Door, client: Client, request: CreateTopicsRequest, _version: int
) -> CreateTopicsResponse:
    """With `validate_only` nothing is made."""

    def create() -> list[CreatableTopicResult]:
        return [
            _created(door, client, each, request.validate_only, refusal)
            for each, refusal in named_once(request.topics, lambda each: each.name)
        ]

    made = await in_thread(door, create)
    return CreateTopicsResponse(throttle_time_ms=client.changes_wait_ms, topics=made)


def _created(
    door: Door, client: Client, asked: CreatableTopic, only_checked: bool, refusal: Refusal | None
) -> CreatableTopicResult:
    name = asked.name
    try:
        if refusal is not None:
            raise refusal
        client.caller.check_create(name)
        count = _wanted_partitions(door, asked)
        configs = plain_configs(((each.name, each.value) for each in asked.configs), ErrorCode.INVALID_CONFIG)
        if only_checked:
            config = plan_creation(door.here, name, count, configs, KAFKA_SETTINGS)
            return _result(client, name, ZERO_UUID, count, config)
        made = create_topic(door.here, client.caller, name, count, configs, KAFKA_SETTINGS)
    except (LakelogError, Refusal) as error:
        code, message = said(error)
        return CreatableTopicResult(name=name, error_code=code, error_message=message)
    return _result(client, name, bytes.fromhex(made.topic_id), count, made.config)


def _wanted_partitions(door: Door, asked: CreatableTopic) -> int:
    """How many partitions a topic is to have. Raises Refusal."""
    count, copies = asked.num_partitions, asked.replication_factor
    if asked.assignments:
        if (count, copies) != (AS_THE_GATEWAY, AS_THE_GATEWAY):
            message = "replicas are assigned, and so neither their number nor that of partitions may be given"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        count, copies = assigned_count(door, asked.assignments), REPLICATION_FACTOR
    elif count == AS_THE_GATEWAY:
        count = door.here.settings.num_partitions
    if copies != AS_THE_GATEWAY and copies < 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"a topic cannot have {copies} replicas; use 1, or -1"
        )
    if not 1 <= count <= PARTITIONS_MAX:
        message = f"a topic cannot have {count} partitions; use 1 to {PARTITIONS_MAX}, or -1"
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    return count


def _result(
    client: Client, name: str, topic_id: bytes, count: int, config: TopicConfig
) -> CreatableTopicResult:
    if not client.caller.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=name, topic_id=topic_id, error_message=None, topic_config_error_code=code, configs=None
        )
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=REPLICATION_FACTOR,
        configs=[_entry(config, each) for each in KAFKA_SETTINGS],
    )


_DEFAULTS = {
    name: CreatableTopicConfigs(name=name, value=setting.default, config_source=ConfigSource.DEFAULT_CONFIG)
    for name, setting in KAFKA_SETTINGS.items()
}


def _entry(config: TopicConfig, name: str) -> CreatableTopicConfigs:
    if name not in config.overrides:
        return _DEFAULTS[name]
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return CreatableTopicConfigs(name=name, value=config[name], config_source=source)


async def create_partitions(
    door: Door, client: Client, request: CreatePartitionsRequest, _version: int
) -> CreatePartitionsResponse:
    """Grow topics, each to a number of partitions; with `validate_only` none grows."""

    def grow() -> list[CreatePartitionsTopicResult]:
        return [
            _grown(door, client, each, request.validate_only, refusal)
            for each, refusal in named_once(request.topics, lambda each: each.name)
        ]

    grown = await in_thread(door, grow)
    return CreatePartitionsResponse(throttle_time_ms=client.changes_wait_ms, results=grown)


def _grown(
    door: Door, client: Client, asked: CreatePartitionsTopic, only_checked: bool, refusal: Refusal | None
) -> CreatePartitionsTopicResult:
    try:
        if refusal is not None:
            raise refusal
        check = partial(_check_assignments, door, asked)
        if only_checked:
            client.caller.check(Operation.ALTER, ResourceType.TOPIC, asked.name)
            check(plan_growth(door.here, asked.name, asked.count))
        else:
            add_partitions(door.here, client.caller, asked.name, asked.count, check)
    except InvalidArgument as error:
        return _not_grown(asked.name, ErrorCode.INVALID_PARTITIONS, error.message)
    except (LakelogError, Refusal) as error:
        return _not_grown(asked.name, *said(error))
    return CreatePartitionsTopicResult(name=asked.name)


def _check_assignments(door: Door, asked: CreatePartitionsTopic, more: int) -> None:
    """Raise Refusal for replicas that so many new partitions cannot have."""
    if asked.assignments is None:
        return
    if len(asked.assignments) != more:
        raise _wrong_assignment(
            f"{len(asked.assignments)} new partitions have replicas, and {more} are to be made"
        )
    check_replicas(door, [each.broker_ids for each in asked.assignments])


def _not_grown(name: str, code: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


async def delete_topics(
    door: Door, client: Client, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """By name, or by id: then only the topic that has it, whoever has taken its name since."""

    def delete() -> list[DeletableTopicResult]:
        by_name = [DeleteTopicState(name=name) for name in request.topic_names]
        asked = request.topics if version >= 6 else by_name
        return [
            _deleted(door, client, each, refusal)
            for each, refusal in named_once(asked, lambda each: (each.name, each.topic_id))
        ]

    gone = await in_thread(door, delete)
    return DeleteTopicsResponse(throttle_time_ms=client.changes_wait_ms, responses=gone)


def _deleted(
    door: Door, client: Client, asked: DeleteTopicState, refusal: Refusal | None
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if refusal is not None:
            raise refusal
        name = result.name = _name_to_delete(door, client, asked)
        topic_id = asked.topic_id.hex() if asked.name is None else None
        delete_topic(door.here, client.caller, name, topic_id)
    except (LakelogError, Refusal) as error:
        result.error_code, result.error_message = said(error)
    return result


def _name_to_delete(door: Door, client: Client, asked: DeleteTopicState) -> str:
    """The name of a topic that may have been named by its id. Raises Refusal."""
    if (asked.name is None) == (asked.topic_id == ZERO_UUID):
        raise Refusal(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id")
    if asked.name is not None:
        return asked.name
    name = current_name_of(door.here, asked.topic_id.hex())
    if name is None or not client.caller.describes(name):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id; ask for the metadata")
    return name


def assigned_count(door: Door, assignments: Sequence[CreatableReplicaAssignment]) -> int:
    """The number of partitions of a new topic whose replicas are assigned so. Raises Refusal.

    An assignment is checked as Kafka does, and has no effect: the store keeps the copies, and the gateways
    share the partitions among them.
    """
    numbers = sorted(each.partition_index for each in assignments)
    if numbers != [*range(len(numbers))]:
        raise _wrong_assignment("the partitions are not numbered from 0 on, each once")
    check_replicas(door, [each.broker_ids for each in assignments])
    return len(numbers)


def check_replicas(door: Door, partitions: Sequence[Sequence[int]]) -> None:
    """Raise Refusal unless each partition has replicas at different gateways, as many as the others."""
    known = door.here.brokers.all()
    for brokers in partitions:
        if not brokers or len(set(brokers)) != len(brokers):
            raise _wrong_assignment("a partition has no replica, or two at one gateway")
        if len(brokers) != len(partitions[0]):
            raise _wrong_assignment("the partitions do not have the same number of replicas")
        strange = next((each for each in brokers if each not in known), None)
        if strange is not None:
            raise _wrong_assignment(f"there is no gateway {strange}; ask for the metadata")


def _wrong_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
