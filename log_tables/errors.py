"""The errors of lakelog, sorted by what the *caller* should do about them.

    LakelogError
    ├── InvalidRequest        fix the request
    │   ├── InvalidTopicName  · InvalidConfig · InvalidArgument
    │   │   └── RootMissing   (there is no cluster)
    │   ├── InvalidRecord     · InvalidOffset
    │   │   ├── InvalidValue  (the topic refuses what does not fit its declared columns)
    │   │   └── InvalidTimestamp (the topic refuses what is too old, or too far ahead)
    │   ├── InvalidConsumer   · InvalidSubscription
    │   │   └── InvalidSessionTimeout · UnsupportedAssignor
    │   ├── InvalidTransactionTimeout · OffsetMetadataTooLarge
    │   └── RecordTooLarge
    ├── AccessDenied          ask an administrator
    │   └── AuthenticationFailed · AuthorizationFailed
    ├── NotFound              name something that exists
    │   ├── UnknownTopic      · UnknownPartition
    │   │   └── TopicDeleted  (read the metadata log, then go on)
    │   ├── UnknownGroup      · UnknownMember
    │   └── ObjectMissing     (the store has no such object)
    ├── Conflict              read again, then decide
    │   ├── TopicExists       · AlreadyExists (the store has such an object)
    │   ├── OffsetMismatch    · OffsetOutOfRange
    │   ├── SequenceGap       · StaleProducerEpoch
    │   ├── ProducerTaken     · UnknownProducer · InvalidTransactionState
    │   ├── MemberExists      · GroupNotEmpty
    │   ├── NotAssigned       · MixedSubscription
    │   ├── StaleGeneration   · RetryKeyReused
    │   ├── RebalanceInProgress · MemberIdRequired (join the group, again)
    │   ├── FencedInstanceId  · InconsistentGroupProtocol
    │   ├── FencedMemberEpoch · StaleMemberEpoch
    │   ├── UnreleasedInstanceId
    │   ├── GroupSubscribedToTopic · MirroredTopic (write to its source, or promote it)
    │   └── BrokerReplaced
    ├── Retriable             repeat the same request: nothing was done
    │   ├── NotLeader         · BufferFull · UnmergedSegments
    │   ├── ConcurrentTransactions (the last one of the id is being applied)
    │   ├── QuotaReached      (repeat when others have made room)
    │   │   └── GroupMaxSizeReached · PartitionsMaxReached
    │   ├── Unreachable       (no gateway answers)
    │   └── StoreUnavailable  (a read failed, or a write that was not begun)
    │       └── PutRefused
    │           └── StoreFull (make room)
    ├── OutcomeUnknown        it may have been done: repeat only what is idempotent, else read first
    └── Damaged               a person must look
        ├── ForeignCommit     · UnsupportedTable
        ├── CorruptSegment    · CorruptLog
        └── TransactionLost

The type says whether something may have been done (`may_be_done`): after OutcomeUnknown, Damaged and a plain
LakelogError it may have been, after all others it certainly was not. An act that fails after its first step
is no Retriable any more (`begun`).

Every class has a stable `code`. Every message names the offending value and ends with what to do.
`details` holds facts for programs (offsets, sequences), by name. Where records are to blame for a refusal,
`record_errors` names them, each by its `index` in the request and with a `message` (as KIP-467 does).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

Detail = Any
"""A number or a text; for `record_errors` a list of objects of them."""

Entry = TypeVar("Entry")


class LakelogError(Exception):
    """Base of every error that lakelog raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __init_subclass__(cls) -> None:
        if "code" in vars(cls):
            _BY_CODE[cls.code] = cls


_BY_CODE: dict[str, type[LakelogError]] = {}


def error_named(code: str, message: str, details: Mapping[str, Detail] | None = None) -> LakelogError:
    """The error with this code, as another process names it; a plain one for an unknown code."""
    return _BY_CODE.get(code, LakelogError)(message, **(details or {}))


def nearest(table: Mapping[type[LakelogError], Entry], error: LakelogError) -> Entry:
    """The entry of `table` for the class of `error`, or for the nearest class above it that is listed."""
    return next(table[kind] for kind in type(error).__mro__ if kind in table)


class InvalidRequest(LakelogError):
    """The request itself is wrong: fix it; repeating it cannot help."""

    code = "invalid_request"


class InvalidTopicName(InvalidRequest):
    code = "invalid_topic_name"


class InvalidConfig(InvalidRequest):
    code = "invalid_config"


class InvalidArgument(InvalidRequest):
    code = "invalid_argument"


class RootMissing(InvalidArgument):
    """There is no directory where a root was named, or no cluster in it."""

    code = "root_missing"


class InvalidRecord(InvalidRequest):
    code = "invalid_record"


class InvalidValue(InvalidRecord):
    """A value does not fit the declared columns of a topic that refuses such. Details: `index` of the record,
    `path` of the field, `reason`.
    """

    code = "invalid_value"


class InvalidTimestamp(InvalidRecord):
    """The time of a record is outside of the bounds of its topic. Details: `index` of the record."""

    code = "invalid_timestamp"


class InvalidOffset(InvalidRequest):
    code = "invalid_offset"


class InvalidConsumer(InvalidRequest):
    """A consumer's configuration, or its group's name, cannot be used."""

    code = "invalid_consumer"


class InvalidSessionTimeout(InvalidConsumer):
    """A member asks for a session timeout outside of what the settings allow."""

    code = "invalid_session_timeout"


class InvalidTransactionTimeout(InvalidRequest):
    """A producer asks for longer transactions than the settings allow."""

    code = "invalid_transaction_timeout"


class OffsetMetadataTooLarge(InvalidRequest):
    """The note of a committed offset is too long."""

    code = "offset_metadata_too_large"


class InvalidSubscription(InvalidRequest):
    """A subscription names no topic, or its pattern is not a regular expression."""

    code = "invalid_subscription"


class RecordTooLarge(InvalidRequest):
    code = "record_too_large"


class AccessDenied(LakelogError):
    """The caller may not do this; another credential or another ACL is needed."""

    code = "access_denied"


class AuthenticationFailed(AccessDenied):
    """There is no credential, or a wrong one. The message never says which part of it is wrong."""

    code = "authentication_failed"


class AuthorizationFailed(AccessDenied):
    """No ACL lets the principal do this. The answer is the same for a resource that does not exist."""

    code = "authorization_failed"


class NotFound(LakelogError):
    """The named thing does not exist."""

    code = "not_found"


class UnknownTopic(NotFound):
    code = "unknown_topic"


class TopicDeleted(UnknownTopic):
    """The topic was deleted, and may have been re-created: nothing was written. `Cluster.current_topic` gives
    the topic that has its name now.
    """

    code = "topic_deleted"


class UnknownPartition(NotFound):
    code = "unknown_partition"


class UnknownGroup(NotFound):
    code = "unknown_group"


class UnknownMember(NotFound):
    """There is no such member: it left, or its session timed out. It has to join again."""

    code = "unknown_member"


class ObjectMissing(NotFound):
    code = "object_missing"


class Conflict(LakelogError):
    """The state is not what the caller assumed: read it again, then decide."""

    code = "conflict"


class TopicExists(Conflict):
    code = "topic_exists"


class AlreadyExists(Conflict):
    code = "already_exists"


class OffsetMismatch(Conflict):
    """A conditional append named another log end. Details: `log_end_offset`."""

    code = "offset_mismatch"


class OffsetOutOfRange(Conflict):
    """Details: `log_start_offset`, `high_watermark`."""

    code = "offset_out_of_range"


class SequenceGap(Conflict):
    """An idempotent producer skipped sequences (KIP-98). Details: `expected`; `current`, the epoch of a known
    producer, where 0 is expected.
    """

    code = "sequence_gap"


class StaleProducerEpoch(Conflict):
    """A newer instance of this producer id has written (KIP-98). Details: `current`."""

    code = "stale_producer_epoch"


class ProducerTaken(Conflict):
    """A client used a producer id of lakelog's own, or lakelog met a client's where its own should be."""

    code = "producer_taken"


class UnknownProducer(Conflict):
    """A transactional id belongs to another producer id, or to none."""

    code = "unknown_producer"


class InvalidTransactionState(Conflict):
    """The transaction of a transactional id is not in a state in which this can be done."""

    code = "invalid_transaction_state"


class MemberExists(Conflict):
    code = "member_exists"


class GroupNotEmpty(Conflict):
    """The group has members, and only they change its offsets."""

    code = "group_not_empty"


class NotAssigned(Conflict):
    """The member does not own the partition, or no longer does."""

    code = "not_assigned"


class BrokerReplaced(Conflict):
    """Another gateway has registered with the URL of this one."""

    code = "broker_replaced"


class MixedSubscription(Conflict):
    """A member chooses its partitions in one way only: by topics, by a pattern, or one by one."""

    code = "mixed_subscription"


class StaleGeneration(Conflict):
    """The assignment of the member has changed since the generation that it named. Details: `current`."""

    code = "stale_generation"


class FencedMemberEpoch(Conflict):
    """The member of a group has an epoch that its coordinator has not given it last (KIP-848). Details:
    `current`.
    """

    code = "fenced_member_epoch"


class StaleMemberEpoch(Conflict):
    """The assignment of the member has changed since the epoch with which it asks for offsets (KIP-848).
    Details: `current`.
    """

    code = "stale_member_epoch"


class UnreleasedInstanceId(Conflict):
    """Another member has the group instance id, and has not left (KIP-848)."""

    code = "unreleased_instance_id"


class UnsupportedAssignor(InvalidConsumer):
    """The coordinator does not know the assignor that a member asks for (KIP-848)."""

    code = "unsupported_assignor"


class RebalanceInProgress(Conflict):
    """The classic group is rebalancing: the member has to join it again."""

    code = "rebalance_in_progress"


class MemberIdRequired(Conflict):
    """A new member of a classic group has to join with the id that it is given here (KIP-394). Details:
    `member_id`.
    """

    code = "member_id_required"


class FencedInstanceId(Conflict):
    """Another member has taken the group instance id since (KIP-345)."""

    code = "fenced_instance_id"


class InconsistentGroupProtocol(Conflict):
    """The members of the group speak another protocol: that of another door, type or assignor."""

    code = "inconsistent_group_protocol"


class MirroredTopic(Conflict):
    """The topic is the copy that a mirror makes of another cluster's: nobody else changes it."""

    code = "mirrored_topic"


class GroupSubscribedToTopic(Conflict):
    """Offsets cannot be deleted while members of the group are subscribed to their topic."""

    code = "group_subscribed_to_topic"


class RetryKeyReused(Conflict):
    """Another transaction, with other content, has the retry key. Details: `transaction`, its number."""

    code = "retry_key_reused"


class Retriable(LakelogError):
    """Nothing was done; the same request may succeed when repeated, and whoever repeats it does it once."""

    code = "retriable"


class NotLeader(Retriable):
    """Another process leads the partition by now, or this one is about to end."""

    code = "not_leader"


class ConcurrentTransactions(Retriable):
    """The last transaction of a transactional id is still being applied."""

    code = "concurrent_transactions"


class BufferFull(Retriable):
    """Details: `retry_after_s`."""

    code = "buffer_full"


class UnmergedSegments(BufferFull):
    """A partition takes no records before its segments are merged. Details: `retry_after_s`."""

    code = "unmerged_segments"


class QuotaReached(Retriable):
    """A limit of the settings is reached, such as that of groups. Details: `retry_after_s`."""

    code = "quota_reached"


class GroupMaxSizeReached(QuotaReached):
    """The group has as many members as `group_max_size` allows, or as many bytes of them as it may hold."""

    code = "group_max_size_reached"


class PartitionsMaxReached(QuotaReached):
    """The topics of a gateway would have more partitions than `partitions_max` allows."""

    code = "partitions_max_reached"


class Unreachable(Retriable):
    """No gateway answers at the URL: nothing was sent, or it was a read, or who answers has done nothing."""

    code = "unreachable"


class StoreUnavailable(Retriable):
    """The store did not answer a read, or has not begun a write. A write without an answer is
    OutcomeUnknown.
    """

    code = "store_unavailable"


class PutRefused(StoreUnavailable):
    """The store refused a put or a deletion, and changed nothing: a missing permission, a full disk."""

    code = "put_refused"


class StoreFull(PutRefused):
    """The store has no room: its disk is full or nearly so, has no inodes left, or a quota is used up."""

    code = "store_full"


class OutcomeUnknown(LakelogError):
    """It may have been done or not: an idempotent producer repeats it, anybody else reads first."""

    code = "outcome_unknown"


class Damaged(LakelogError):
    """Stored data breaks an invariant. Nothing is repaired silently: a person must look."""

    code = "damaged"


class ForeignCommit(Damaged):
    """Another tool changed the table. Details: `version`, `operation`."""

    code = "foreign_commit"


class UnsupportedTable(Damaged):
    """The table asks for Delta features that this program does not have. Details: `feature`."""

    code = "unsupported_table"


class CorruptSegment(Damaged):
    code = "corrupt_segment"


class CorruptLog(Damaged):
    code = "corrupt_log"


class TransactionLost(Damaged):
    """Records of a committed transaction were lost before they were appended to their topics."""

    code = "transaction_lost"


def may_be_done(error: BaseException) -> bool:
    """Whether a request that failed with `error` may have been done all the same, wholly or in part."""
    return not isinstance(error, InvalidRequest | AccessDenied | NotFound | Conflict | Retriable)


@contextmanager
def begun(what: str) -> Iterator[None]:
    """The rest of an act of which `what` is done: a failure that would say that nothing was done is
    OutcomeUnknown.
    """
    try:
        yield
    except Retriable as error:
        raise OutcomeUnknown(f"{what}, and then: {error.message}; look before you repeat it") from error
