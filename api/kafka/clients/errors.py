"""Kafka's error codes, and which of them stands for which of our errors."""

from enum import IntEnum

from log_tables import errors
from log_tables.errors import LakelogError, nearest


class ErrorCode(IntEnum):
    """The codes that this door answers, by Kafka's names (org.apache.kafka.common.protocol.Errors)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


DENIALS = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
)
"""What one without the right is told."""


_CODES: dict[type[LakelogError], ErrorCode] = {
    LakelogError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.InvalidConsumer: ErrorCode.INVALID_GROUP_ID,
    errors.InvalidOffset: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.AuthorizationFailed: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.SequenceGap: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.ProducerTaken: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.UnknownProducer: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.StaleGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.FencedInstanceId: ErrorCode.FENCED_INSTANCE_ID,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnreleasedInstanceId: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidSubscription: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InconsistentGroupProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.MirroredTopic: ErrorCode.POLICY_VIOLATION,
    errors.Retriable: ErrorCode.REQUEST_TIMED_OUT,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Unreachable: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.BufferFull: ErrorCode.REQUEST_TIMED_OUT,
    errors.GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.PartitionsMaxReached: ErrorCode.POLICY_VIOLATION,  # for a quota, clients would wait
    errors.QuotaReached: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.StoreUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
    errors.Damaged: ErrorCode.KAFKA_STORAGE_ERROR,
}

_GROUP_CODES: dict[type[LakelogError], ErrorCode] = {
    **_CODES,
    errors.AuthorizationFailed: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.NotLeader: ErrorCode.NOT_COORDINATOR,
    errors.Unreachable: ErrorCode.NOT_COORDINATOR,
    errors.Retriable: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.QuotaReached: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.BufferFull: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.StoreUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.OutcomeUnknown: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.Damaged: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""A group's clients repeat what they take for a busy coordinator, and stop at what they do not know."""


def error_code(error: LakelogError) -> ErrorCode:
    """The code of the nearest class of `error` that has one; of a denial that of a topic."""
    return nearest(_CODES, error)


class Refusal(Exception):
    """A request that only Kafka's clients can send is wrong, or is no request for this door."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def said(
    error: LakelogError | Refusal, denied: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED
) -> tuple[ErrorCode, str]:
    """The code and the message of an answer; `denied` is the code of a denial."""
    if isinstance(error, Refusal):
        return error.code, error.message
    code = denied if isinstance(error, errors.AuthorizationFailed) else error_code(error)
    return code, error.message


_TRANSACTION_CODES: dict[type[LakelogError], ErrorCode] = {
    **_GROUP_CODES,
    errors.AuthorizationFailed: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.InvalidArgument: ErrorCode.INVALID_REQUEST,
}


def transaction_error_code(error: LakelogError, is_fenced_said: bool = False) -> ErrorCode:
    """The code of `error` in an answer about a transaction. With `is_fenced_said` a producer that is fenced
    hears so (KIP-588).
    """
    if is_fenced_said and isinstance(error, errors.StaleProducerEpoch):
        return ErrorCode.PRODUCER_FENCED
    return nearest(_TRANSACTION_CODES, error)


def group_error_code(error: LakelogError) -> ErrorCode:
    """The code of `error` in the answer to a request to a group."""
    return nearest(_GROUP_CODES, error)
