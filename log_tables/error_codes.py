"""The `error_code` of each class of errors over HTTP: one table for gateways and for clients.

The codes are the Confluent REST Proxy's, but 50303, 50304 and those of conflicts from 40910 on, which are
lakelog's own. The proxy answers 40002 for a topic that exists (v3), and 40903 for a subscription that mixes
topics, a pattern and partitions.
"""

from collections.abc import Mapping

from log_tables import errors
from log_tables.errors import LakelogError

BAD_REQUEST, RETRIABLE, INTERNAL = 40002, 50003, 50002

ERROR_CODES: Mapping[type[LakelogError], int] = {
    LakelogError: INTERNAL,
    errors.InvalidRequest: BAD_REQUEST,
    errors.InvalidTopicName: BAD_REQUEST,
    errors.InvalidConfig: BAD_REQUEST,
    errors.InvalidArgument: BAD_REQUEST,
    errors.RootMissing: BAD_REQUEST,
    errors.InvalidOffset: BAD_REQUEST,
    errors.OffsetMetadataTooLarge: BAD_REQUEST,
    errors.InvalidTransactionTimeout: BAD_REQUEST,
    errors.TopicExists: BAD_REQUEST,
    errors.RecordTooLarge: 413,
    errors.InvalidConsumer: 42204,
    errors.InvalidSessionTimeout: 42204,
    errors.UnsupportedAssignor: 42204,
    errors.InvalidRecord: 42206,
    errors.InvalidSubscription: 42206,
    errors.InvalidValue: 42210,
    errors.InvalidTimestamp: 42211,
    errors.AuthenticationFailed: 40101,
    errors.AuthorizationFailed: 40301,
    errors.AccessDenied: 40301,
    errors.StaleProducerEpoch: 40310,
    errors.ProducerTaken: 40311,
    errors.NotFound: 404,
    errors.UnknownTopic: 40401,
    errors.TopicDeleted: 40401,
    errors.UnknownPartition: 40402,
    errors.UnknownMember: 40403,
    errors.UnknownGroup: 40405,
    errors.Conflict: 409,
    errors.RebalanceInProgress: 409,
    errors.MemberIdRequired: 409,
    errors.FencedInstanceId: 409,
    errors.FencedMemberEpoch: 409,
    errors.StaleMemberEpoch: 409,
    errors.UnreleasedInstanceId: 409,
    errors.GroupSubscribedToTopic: 409,
    errors.MirroredTopic: 409,
    errors.BrokerReplaced: 409,
    errors.UnknownProducer: 409,
    errors.InvalidTransactionState: 409,
    errors.MemberExists: 40902,
    errors.MixedSubscription: 40903,
    errors.SequenceGap: 40910,
    errors.RetryKeyReused: 40911,
    errors.StaleGeneration: 40912,
    errors.NotAssigned: 40913,
    errors.GroupNotEmpty: 40914,
    errors.InconsistentGroupProtocol: 40915,
    errors.OffsetMismatch: 41201,
    errors.OffsetOutOfRange: 41601,
    errors.BufferFull: 42901,
    errors.UnmergedSegments: 42901,
    errors.QuotaReached: 42901,
    errors.GroupMaxSizeReached: 42901,
    errors.PartitionsMaxReached: 42901,
    errors.Retriable: RETRIABLE,
    errors.ConcurrentTransactions: RETRIABLE,
    errors.Unreachable: RETRIABLE,
    errors.StoreUnavailable: RETRIABLE,
    errors.PutRefused: RETRIABLE,
    errors.StoreFull: RETRIABLE,
    errors.NotLeader: 50304,
    errors.OutcomeUnknown: 50303,
    errors.ObjectMissing: INTERNAL,
    errors.AlreadyExists: INTERNAL,
    errors.Damaged: INTERNAL,
    errors.ForeignCommit: INTERNAL,
    errors.UnsupportedTable: INTERNAL,
    errors.CorruptSegment: INTERNAL,
    errors.CorruptLog: INTERNAL,
    errors.TransactionLost: INTERNAL,
}
"""A class that is not listed has the code of the nearest class above it. Of classes that share a code the
first is the one that a client raises, unless the answer names another (`NAMED`).
"""

NAMED = frozenset(
    {
        errors.TopicExists,
        errors.InvalidTopicName,
        errors.InvalidConfig,
        errors.QuotaReached,
        errors.PartitionsMaxReached,
        errors.GroupMaxSizeReached,
        errors.MirroredTopic,
        errors.StoreFull,
    }
)
"""Classes that share their code with one that asks a program for something else. An answer names them by
their own `code`, in the field `error`: a program that creates a topic goes on where it exists.
"""


def status_of(code: int) -> int:
    """The HTTP status of an answer with `code`: its first three digits; of 50003 it is 503, so that proxies
    and clients repeat the request.
    """
    return 503 if code == RETRIABLE else int(str(code)[:3])
