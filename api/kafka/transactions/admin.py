"""Transactions for administrators (KIP-664): DescribeTransactions, ListTransactions, DescribeProducers.

No record of an open transaction is in a partition, so no transaction hangs there: DescribeProducers names the
producers that the log knows, and never the start of a transaction. WriteTxnMarkers, by which an administrator
of Kafka ends one that hangs, has nothing to do here, and is not offered.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from api.client_topics import with_partition
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, in_thread
from api.kafka.clients.errors import ErrorCode, error_code, said, transaction_error_code
from api.kafka.protocol.messages.transactions import (
    DescribedTransactionState,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducerState,
    TransactionTopicData,
)
from coordinator.groups.producers.producer_view import State
from coordinator.groups.producers.producer_wire import ProducerDescription
from coordinator.groups.topic_filter import matching
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import LakelogError
from log_tables.limits import KAFKA_RESOURCES_MAX, ONCE_PRODUCER_ID_MIN, SEQUENCE_MODULUS
from log_tables.partition.partition import Partition

NO_EPOCH = -1
"""The epoch of a coordinator that writes nothing to partitions."""


async def describe_transactions(
    door: Door, client: Client, request: DescribeTransactionsRequest, _version: int
) -> DescribeTransactionsResponse:
    """Each id has a code of its own. Topics that the client may not describe are left out."""

    async def described(name: str) -> DescribedTransactionState:
        return await _described(door, client, name)

    names = [*dict.fromkeys(request.transactional_ids)]
    return DescribeTransactionsResponse(
        transaction_states=await door.here.loop_share.results(described, names) if names else []
    )


async def _described(door: Door, client: Client, name: str) -> DescribedTransactionState:
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        found = await door.here.producers.describe(name)
    except LakelogError as error:
        return DescribedTransactionState(transactional_id=name, error_code=transaction_error_code(error))
    if found is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransactionState(transactional_id=name, error_code=code)
    return DescribedTransactionState(
        transactional_id=name,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.began_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(client, found),
    )


def _topics(client: Client, found: ProducerDescription) -> list[TransactionTopicData]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [
        TransactionTopicData(topic=topic, partitions=partitions)
        for topic, partitions in by_topic.items()
        if client.caller.describes(topic)
    ]


async def list_transactions(
    door: Door, client: Client, request: ListTransactionsRequest, _version: int
) -> ListTransactionsResponse:
    """The ids that this gateway coordinates: clients ask them all. With a least duration only those are
    listed whose transaction is open, as no other takes any time.
    """
    states = {*map(str, State)}
    answer = ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in states]
    )
    share, pattern = door.here.loop_share, request.transactional_id_pattern
    try:
        found = [
            each
            async for each in share.each(await door.here.producers.coordinated_here())
            if _is_asked_for(door, request, each)
            and client.caller.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.id)
        ]
        names = [each.id for each in found]
        shown = {*(await share.in_thread(lambda: matching(pattern, names)) if pattern else names)}
    except LakelogError as error:
        answer.error_code = error_code(error)
        return answer
    answer.transaction_states = [
        ListedTransactionState(
            transactional_id=each.id, producer_id=each.producer_id, transaction_state=each.state
        )
        async for each in share.each(found)
        if each.id in shown
    ]
    return answer


def _is_asked_for(door: Door, request: ListTransactionsRequest, each: ProducerDescription) -> bool:
    if request.state_filters and each.state not in request.state_filters:
        return False
    if request.producer_id_filters and each.producer_id not in request.producer_id_filters:
        return False
    least_ms = request.duration_filter
    return least_ms < 0 or (each.began_ms >= 0 and door.here.clock.now_ms() - each.began_ms > least_ms)


async def describe_producers(
    door: Door, client: Client, request: DescribeProducersRequest, _version: int
) -> DescribeProducersResponse:
    """The producers of clients that the log of each partition knows. KAFKA_RESOURCES_MAX partitions are
    looked at, and no others. Any gateway does it.
    """
    numbers = count()

    def describe() -> list[DescribeProducersTopicResponse]:
        return [_of_topic(door, client, topic, numbers) for topic in request.topics]

    return DescribeProducersResponse(topics=await in_thread(door, describe))


def _of_topic(
    door: Door, client: Client, asked: DescribeProducersTopicRequest, numbers: Iterator[int]
) -> DescribeProducersTopicResponse:
    return DescribeProducersTopicResponse(
        name=asked.name,
        partitions=[
            _of_partition(door, client, asked.name, partition)
            if next(numbers) < KAFKA_RESOURCES_MAX
            else DescribeProducersPartitionResponse(
                partition_index=partition, error_code=ErrorCode.POLICY_VIOLATION
            )
            for partition in asked.partition_indexes
        ],
    )


def _of_partition(
    door: Door, client: Client, topic: str, partition: int
) -> DescribeProducersPartitionResponse:
    try:
        client.caller.check(Operation.READ, ResourceType.TOPIC, topic)
        found = with_partition(door.here, topic, partition, _active)
    except LakelogError as error:
        code, message = said(error)
        return DescribeProducersPartitionResponse(
            partition_index=partition, error_code=code, error_message=message
        )
    return DescribeProducersPartitionResponse(partition_index=partition, active_producers=[*found])


def _active(partition: Partition) -> Sequence[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=(state.next_sequence - 1) % SEQUENCE_MODULUS,
            last_timestamp=heard_ms,
            coordinator_epoch=NO_EPOCH,
        )
        for producer_id, state, heard_ms in partition.snapshot.txns.producers()
        if producer_id < ONCE_PRODUCER_ID_MIN
    ]
