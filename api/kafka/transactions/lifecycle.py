"""The life of a transaction: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

Produce stages its records (`logs/produce.py`). A client of transaction version 2 adds partitions and offsets
by Produce and TxnOffsetCommit themselves, and gets another epoch with each EndTxn (KIP-890).
"""

from collections.abc import Mapping
from functools import partial

from api.client_topics import know_names, known_topic_to_write, refreshed_topic
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, error_code, transaction_error_code
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from api.kafka.protocol.notation import has_more
from coordinator.groups.classic.events import CommitOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.group_wire import Refused
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    AddPartitions,
    EndTransaction,
    InitProducer,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AuthorizationFailed, ConcurrentTransactions, LakelogError, UnknownPartition
from log_tables.limits import KAFKA_INLINE_ELEMENTS
from log_tables.topic_partition import TopicIdPartition, TopicPartition

FENCED_SINCE_INIT = 4
FENCED_SINCE_ADD_PARTITIONS = 2
FENCED_SINCE = 2
"""The versions from which on a producer hears PRODUCER_FENCED; others hear INVALID_PRODUCER_EPOCH (KIP-588).
"""

IMPLICIT_OFFSETS_SINCE = 5
"""The version of TxnOffsetCommit that adds its group to the transaction (KIP-890)."""

MOVES_ON_SINCE = 5
"""The version of EndTxn after which a producer has another epoch (KIP-890)."""

NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED


async def init_transactional_id(
    door: Door, client: Client, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """The producer of a transactional id: older ones are fenced, and what they left open is aborted. That is
    audited where they are another principal's: an administrator may do so.
    """
    name = request.transactional_id or ""
    try:
        client.caller.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        identified = client.caller.identified
        asked = InitProducer(
            name,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            "" if identified is None else identified.principal.name,
        )
        begun = await door.here.producers.begin(asked)
        if begun.fenced:
            facts = {"fenced": begun.fenced}
            client.caller.note_change("InitProducerId", ResourceType.TRANSACTIONAL_ID, name, **facts)
    except LakelogError as error:
        return InitProducerIdResponse(error_code=transaction_error_code(error, version >= FENCED_SINCE_INIT))
    return InitProducerIdResponse(producer_id=begun.producer_id, producer_epoch=begun.epoch)


async def add_partitions_to_txn(
    door: Door, client: Client, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse:
    """All of the partitions are added, or none."""
    try:
        client.caller.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    except AuthorizationFailed as error:
        return _added(request, {}, transaction_error_code(error))
    names = (each.name for each in request.topics)
    await know_names(door.here, names, partial(client.caller.allows, Operation.WRITE, ResourceType.TOPIC))
    found: set[TopicIdPartition] = set()
    refused: dict[TopicPartition, ErrorCode] = {}
    async for topic in door.here.loop_share.each(request.topics):
        try:
            found |= await _partitions(door, client, topic)
        except LakelogError as error:
            code = error_code(error)
            refused |= {TopicPartition(topic.name, partition): code for partition in topic.partitions}
    if refused:
        return _added(request, refused, NOT_ATTEMPTED)
    place = request.transactional_id, request.producer_id, request.producer_epoch
    try:
        await door.here.producers.add_partitions(AddPartitions(*place, tuple(sorted(found))))
    except LakelogError as error:
        return _added(request, {}, transaction_error_code(error, version >= FENCED_SINCE_ADD_PARTITIONS))
    return _added(request, {}, ErrorCode.NONE)


async def _partitions(door: Door, client: Client, asked: AddPartitionsToTxnTopic) -> set[TopicIdPartition]:
    client.caller.check(Operation.WRITE, ResourceType.TOPIC, asked.name)
    topic = await known_topic_to_write(door.here, asked.name)
    if any(not 0 <= partition < topic.partition_count for partition in asked.partitions):
        topic = await refreshed_topic(door.here, topic)
    for partition in asked.partitions:
        if not 0 <= partition < topic.partition_count:
            raise UnknownPartition(
                f"topic {topic.name} has no partition {partition}; it has 0 to {topic.partition_count - 1}"
            )
    return {TopicIdPartition(topic.name, topic.topic_id, partition) for partition in asked.partitions}


def _added(
    request: AddPartitionsToTxnRequest, refused: dict[TopicPartition, ErrorCode], others: ErrorCode
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=refused.get(TopicPartition(topic.name, partition), others),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def add_offsets_to_txn(
    door: Door, client: Client, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    """The offsets of a group are to be committed with the transaction."""
    try:
        client.caller.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if not client.caller.may(Operation.READ, ResourceType.GROUP, request.group_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        place = request.transactional_id, request.producer_id, request.producer_epoch
        await door.here.producers.add_offsets(AddOffsets(*place, request.group_id, opens=True))
    except LakelogError as error:
        return AddOffsetsToTxnResponse(error_code=transaction_error_code(error, version >= FENCED_SINCE))
    return AddOffsetsToTxnResponse()


async def txn_offset_commit(
    door: Door, client: Client, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    """Each partition has a code of its own. A client that may not read the group learns of no topic."""
    share, is_wide = door.here.loop_share, has_more(request, KAFKA_INLINE_ELEMENTS)
    others = _refusal(client, request)
    codes: dict[TopicPartition, ErrorCode] = {}
    if others is ErrorCode.NONE:
        offsets, codes = await share.maybe_in_thread(is_wide, lambda: _offsets(client, request))
        try:
            refused = await _pend(door, client, request, offsets, version)
        except ConcurrentTransactions as error:
            # Older clients repeat the request for the one, and abort for the other.
            is_known = version >= IMPLICIT_OFFSETS_SINCE
            others = error_code(error) if is_known else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        except LakelogError as error:
            others = transaction_error_code(error)
        else:
            codes |= await share.maybe_in_thread(
                is_wide, lambda: {at: error_code(error) for at, error in refused.items()}
            )
    return await share.maybe_in_thread(is_wide, lambda: _pended(request, codes, others))


def _refusal(client: Client, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not client.caller.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    may = client.caller.may(Operation.READ, ResourceType.GROUP, request.group_id)
    return ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _offsets(
    client: Client, request: TxnOffsetCommitRequest
) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, ErrorCode]]:
    """The offsets that are to be committed, and the codes of those that may not."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        may = client.caller.may(Operation.READ, ResourceType.TOPIC, topic.name)
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition_index)
            if may:
                offsets[at] = OffsetAndMetadata(
                    each.committed_offset, each.committed_metadata or "", each.committed_leader_epoch
                )
            else:
                codes[at] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return offsets, codes


def _pended(
    request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode], others: ErrorCode
) -> TxnOffsetCommitResponse:
    """The answer with the `codes` of partitions; `others` have that one."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, each.partition_index), others),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _pend(
    door: Door,
    client: Client,
    request: TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    version: int,
) -> Refused:
    commit = CommitOffsets(
        offsets=offsets,
        at_ms=door.here.clock.now_ms(),
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        context=client.caller.identified,
    )
    place = request.transactional_id, request.producer_id, request.producer_epoch
    asked = AddOffsets(*place, request.group_id, opens=version >= IMPLICIT_OFFSETS_SINCE)
    return await door.here.producers.commit_offsets(asked, commit)


async def end_txn(door: Door, client: Client, request: EndTxnRequest, version: int) -> EndTxnResponse:
    """The records are in their partitions then, or will be; or nothing of them is, ever."""
    place = request.transactional_id, request.producer_id, request.producer_epoch
    moves_on = version >= MOVES_ON_SINCE
    try:
        client.caller.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        ended = await door.here.producers.end(EndTransaction(*place, request.committed, moves_on))
    except LakelogError as error:
        return EndTxnResponse(error_code=transaction_error_code(error, version >= FENCED_SINCE))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
