"""The audit of what Kafka's APIs are refused: each result of a change that failed, once, as it is told.

A change that is made is noted where it is made, and so are failures there; a denial is one already.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from api.kafka.access.quotas import entity_shown
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, Handler
from api.kafka.clients.errors import DENIALS
from api.kafka.protocol import apis
from api.kafka.protocol.notation import has_more
from api.kafka.topics.configs import ConfigResourceType
from log_tables.cluster.acl import CLUSTER_NAME, ResourceType
from log_tables.limits import KAFKA_INLINE_ELEMENTS, KAFKA_RESOURCES_MAX


class Outcome(NamedTuple):
    """The resource of a result, and its error."""

    resource_type: str
    name: str
    code: int


class Change(NamedTuple):
    """An API that changes something: the operation, as it is audited, and the outcomes of an answer to a
    request.
    """

    operation: str
    outcomes: Callable[[Any, Any], Iterator[Outcome]]


def _topics(results: Iterable[Any]) -> Iterator[Outcome]:
    for each in results:
        name = each.topic_id.hex() if each.name is None else each.name
        yield Outcome(ResourceType.TOPIC, name, each.error_code)


def _cluster(results: Iterable[Any]) -> Iterator[Outcome]:
    return (Outcome(ResourceType.CLUSTER, CLUSTER_NAME, each.error_code) for each in results)


def _records(_request: Any, answer: Any) -> Iterator[Outcome]:
    for topic in answer.topics:
        yield from (Outcome(ResourceType.TOPIC, topic.name, each.error_code) for each in topic.partitions)


def _configs(_request: Any, answer: Any) -> Iterator[Outcome]:
    kinds = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
    for each in answer.responses:
        kind = kinds.get(each.resource_type, ResourceType.CLUSTER)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else each.resource_name
        yield Outcome(kind, name, each.error_code)


def _groups(_request: Any, answer: Any) -> Iterator[Outcome]:
    return (Outcome(ResourceType.GROUP, each.group_id, each.error_code) for each in answer.results)


def _offsets(request: Any, answer: Any) -> Iterator[Outcome]:
    yield Outcome(ResourceType.GROUP, request.group_id, answer.error_code)
    for topic in answer.topics:
        yield from (
            Outcome(ResourceType.GROUP, request.group_id, each.error_code) for each in topic.partitions
        )


def _quotas(_request: Any, answer: Any) -> Iterator[Outcome]:
    return (Outcome("QUOTA", entity_shown(each.entity), each.error_code) for each in answer.entries)


def _users(_request: Any, answer: Any) -> Iterator[Outcome]:
    return (Outcome("USER", each.user, each.error_code) for each in answer.results)


CHANGES: Mapping[int, Change] = {
    apis.CREATE_TOPICS: Change("CreateTopics", lambda _, answer: _topics(answer.topics)),
    apis.DELETE_TOPICS: Change("DeleteTopics", lambda _, answer: _topics(answer.responses)),
    apis.CREATE_PARTITIONS: Change("CreatePartitions", lambda _, answer: _topics(answer.results)),
    apis.DELETE_RECORDS: Change("DeleteRecords", _records),
    apis.ALTER_CONFIGS: Change("AlterConfigs", _configs),
    apis.INCREMENTAL_ALTER_CONFIGS: Change("IncrementalAlterConfigs", _configs),
    apis.DELETE_GROUPS: Change("DeleteGroups", _groups),
    apis.OFFSET_DELETE: Change("DeleteOffsets", _offsets),
    apis.CREATE_ACLS: Change("CreateAcls", lambda _, answer: _cluster(answer.results)),
    apis.DELETE_ACLS: Change("DeleteAcls", lambda _, answer: _cluster(answer.filter_results)),
    apis.ALTER_CLIENT_QUOTAS: Change("AlterClientQuotas", _quotas),
    apis.ALTER_USER_SCRAM_CREDENTIALS: Change("AlterUserScramCredentials", _users),
}
"""By the key of the API. ElectLeaders is none: no election is ever needed, and nothing changes."""


def audited(handle: Handler, change: Change | None) -> Handler:
    """`handle`, whose refusals are audited; those of a request that only checks are not."""
    if change is None:
        return handle

    async def answer(door: Door, client: Client, request: Any, version: int) -> Any:
        caller = client.caller
        if caller.audit is None or getattr(request, "validate_only", False):
            return await handle(door, client, request, version)
        with caller.noting_failures() as noted:
            found = await handle(door, client, request, version)

        def note() -> None:
            refused = dict.fromkeys(
                each
                for each in change.outcomes(request, found)
                if each.code and each.code not in DENIALS and each[:2] not in noted
            )
            for kind, name, code in islice(refused, KAFKA_RESOURCES_MAX):
                caller.note_failed(change.operation, kind, name, code)

        is_wide = has_more(request, KAFKA_INLINE_ELEMENTS)
        await door.here.loop_share.maybe_in_thread(is_wide, note)
        return found

    return answer
