"""Transactions (KIP-98, KIP-447, KIP-890): AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit.

For administrators: DescribeProducers, DescribeTransactions, ListTransactions (KIP-664). From version 4 on
AddPartitionsToTxn is of brokers among themselves, and not described.
"""

from typing import Annotated

from api.kafka.protocol.notation import Int16, Int32, Int64, Message, Struct, Versions


class AddPartitionsToTxnTopic(Struct):
    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnRequest(Message):
    versions = Versions(0, 3)
    first_flexible = 3

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResponse(Message):
    versions = Versions(0, 3)
    first_flexible = 3

    throttle_time_ms: Int32 = 0
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = []


class AddOffsetsToTxnRequest(Message):
    versions = Versions(0, 4)
    first_flexible = 3

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message):
    versions = Versions(0, 4)
    first_flexible = 3

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class EndTxnRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Versions(5)] = -1
    producer_epoch: Annotated[Int16, Versions(5)] = -1


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(2)] = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, Versions(3)] = -1
    member_id: Annotated[str, Versions(3)] = ""
    group_instance_id: Annotated[str | None, Versions(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class DescribeProducersTopicRequest(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    topics: list[DescribeProducersTopicRequest] = []


class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribeProducersPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class DescribeProducersTopicResponse(Struct):
    name: str = ""
    partitions: list[DescribeProducersPartitionResponse] = []


class DescribeProducersResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResponse] = []


class DescribeTransactionsRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    transactional_ids: list[str] = []


class TransactionTopicData(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class DescribedTransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TransactionTopicData] = []


class DescribeTransactionsResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransactionState] = []


class ListTransactionsRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, Versions(1)] = -1
    transactional_id_pattern: Annotated[str | None, Versions(2)] = None


class ListedTransactionState(Struct):
    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListedTransactionState] = []
