"""Appending the records of a request to the topic of a name, as the topic is now.

The gateway may know an old state of the topic. If that state refuses a request, the gateway reads the current
state and tries again. Records that a deleted topic did not take go to the topic that has its name now.
Records that were appended before stay with the old topic, and the answer says so.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from api.client_topics import current_topic, refreshed_topic
from api.errors import status_and_code
from api.gateway import Gateway
from api.wire.offload import (
    INLINE_MAX_JUDGED,
    INLINE_MAX_JUDGED_BYTES,
    INLINE_MAX_ROWS,
    maybe_in_thread,
)
from api.wire.room import hold, settle
from api.wire.v2 import RecordResult
from coordinator.access.principal import RequestContext
from ingest.buffer import Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.route import PartitionBatch, Route, SentRecords, joined
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidValue,
    LakelogError,
    OffsetMismatch,
    RecordTooLarge,
    TopicDeleted,
    UnknownPartition,
)
from log_tables.key_hash import MURMUR2, MURMUR3, partition_for_key
from log_tables.limits import APPENDS_AT_ONCE, PART_BYTES
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.rows import Records, bytes_of, count_of

_REFUSED_BY_TOPIC = (InvalidRecord, RecordTooLarge, UnknownPartition)
"""Refusals that depend on the known state of the topic."""

NO_OFFSET = -1
"""No log ends here."""


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """How the gateway `here` appends records to one topic, all to one partition if it is `fixed`.

    `room` holds the records, from before they are split until they are appended.

    `in_turn` says that the request was answered already (acks=0), and that later requests wait for it. If it
    is `judged`, no value is refused any more. `sticky_key` chooses the partition of records without a key, if
    it is not empty: where a repeat finds them. The partitions count for the client of `context`.
    """

    here: Gateway
    room: Room
    acks: Acks
    fixed: int | None = None
    stamp: ProducerStamp | None = None
    expected_offset: int | None = None
    in_turn: bool = False
    judged: bool = False
    sticky_key: bytes = b""
    context: RequestContext | None = None

    def append_requests(self, batches: list[PartitionBatch]) -> list[tuple[int, AppendRequest]]:
        """(partition, request to its leader) of each batch."""
        author = self.here.access.author(self.context)
        return [
            (batch.partition, AppendRequest(batch.records, self.stamp, self.expected_offset, author=author))
            for batch in batches
        ]


@dataclass(slots=True)
class ProduceResult:
    """The outcome of each batch of a request. The batches may have gone to several topics of one name."""

    batches: list[PartitionBatch]
    outcomes: list[AppendOutcome]

    def add(self, batch: PartitionBatch, outcome: AppendOutcome) -> None:
        self.batches.append(batch)
        self.outcomes.append(outcome)


class _Split(NamedTuple):
    """The batches of a request for `topic`. Its room holds `besides_bytes` besides them.

    `refused` is the error of a value or a time that the topic refuses: the request may be a repeat.
    """

    topic: Topic
    batches: list[PartitionBatch]
    besides_bytes: int
    refused: InvalidRecord | None


async def append(topic: Topic, sent: SentRecords, request: ProduceRequest) -> ProduceResult:
    """Append `sent`, which the room of `request` holds, to `topic`, or to the topic that has its name now.

    The caller keeps no reference to `sent`: while its parts wait, it is not there besides. Raises the errors
    of `Route.split`, UnknownTopic, RequestTooLarge and BufferFull, if nothing was appended.
    """
    result = ProduceResult([], [])
    rest: list[PartitionBatch] = []
    while True:
        try:
            split = await _split(topic, sent, request)
            del sent
            topic, partitions = split.topic, split.topic.partition_count
            outcomes = await _outcomes(split, request)
            rest = []  # only now: an error before this is the outcome of the whole rest
            for batch, outcome in zip(split.batches, outcomes, strict=True):
                if isinstance(outcome, TopicDeleted):
                    rest, deleted = [*rest, batch], outcome
                else:
                    result.add(batch, outcome)
            if not rest:
                return result
            topic = await current_topic(request.here, topic, partitions, deleted)
            sent = joined(rest)
        except LakelogError as error:
            if not result.batches:
                raise
            for batch in rest:
                result.add(batch, error)
            return result


async def _split(topic: Topic, sent: SentRecords, request: ProduceRequest) -> _Split:
    """The batches for `topic`. If it refuses the records, those for its current state, if that differs."""
    here, room, fixed, refused = request.here, request.room, request.fixed, None
    held = room.size_bytes
    while True:
        before = topic_state(topic)
        sticky = _sticky_partition(topic, request) if fixed is None and sent.sticks else 0
        judged = request.judged or refused is not None
        route = Route(topic, fixed, sticky, here.clock.now_us(), judged)
        try:
            hold(room, held + route.copied_bytes(sent))
            batches = await maybe_in_thread(is_much(sent.records, topic), partial(route.split, sent))
            return _Split(topic, batches, max(0, held - bytes_of(sent.records)), refused)
        except _REFUSED_BY_TOPIC as error:
            topic = await refreshed_topic(here, topic)
            if topic_state(topic) == before:
                if request.stamp is None or not isinstance(error, InvalidTimestamp | InvalidValue):
                    raise
                refused = error.with_traceback(None)  # its frames would keep the records


def _sticky_partition(topic: Topic, request: ProduceRequest) -> int:
    """The partition of records without a key. Finding one looks at who leads what."""
    if request.sticky_key:
        return partition_for_key(request.sticky_key, topic.partition_count, MURMUR3)
    return request.here.router.sticky_partition(topic)


def is_much(records: Records, topic: Topic) -> bool:
    """Whether it is a lot of work to say where `records` for `topic` go, and whether it takes them."""
    count = count_of(records)
    if topic.config.needs_schemas:
        return True
    if not topic.config.required_columns.columns and topic.config.key_hash != MURMUR2:
        return count > INLINE_MAX_ROWS
    return count > INLINE_MAX_JUDGED or bytes_of(records) > INLINE_MAX_JUDGED_BYTES


async def _outcomes(split: _Split, request: ProduceRequest) -> list[AppendOutcome]:
    """The outcome of each batch. Raises BufferFull.

    A request with a value or a time that is refused now may have been appended before the topic began to
    refuse it: then the leader knows its sequence. Else the log does not end at the offset that is expected
    here, and nothing is appended.
    """
    refused = split.refused
    if refused is None:
        return await _append(split, request)
    asked = replace(request, acks=Acks.ALL, expected_offset=NO_OFFSET)
    outcomes = await _append(split, asked)
    return [refused if isinstance(outcome, OffsetMismatch) else outcome for outcome in outcomes]


def topic_state(topic: Topic) -> tuple[str, int, TopicConfig, int]:
    """The state of a topic on which refusals depend."""
    return topic.topic_id, topic.partition_count, topic.config, topic.schemas.version


async def _append(split: _Split, request: ProduceRequest) -> list[AppendOutcome]:
    """The outcome of each batch. Raises BufferFull."""
    here, topic, batches = request.here, split.topic, split.batches

    async def append_again(number: int, acks: Acks) -> None:
        """Append a batch that was answered already (acks=0) to the topic that has the name now."""
        with here.buffer.room(topic.name) as more:
            later = replace(request, room=more, acks=acks, in_turn=True, judged=True)
            again = await refreshed_topic(here, topic)
            result = await append(again, joined([batches[number]]), later)
            for outcome in result.outcomes:
                if isinstance(outcome, LakelogError):
                    raise outcome

    requests = await maybe_in_thread(len(batches) > APPENDS_AT_ONCE, lambda: request.append_requests(batches))
    settle(request.room, split.besides_bytes + sum(each.size_bytes + PART_BYTES for _, each in requests))
    with here.access.named(request.context, 1, len(requests)):
        return await here.router.append(
            topic, requests, request.acks, request.room, append_again, request.in_turn
        )


def refuse_if_all_failed(outcomes: list[AppendOutcome]) -> None:
    """Raise the first error if nothing was appended."""
    first = outcomes[0]
    if isinstance(first, LakelogError) and not any(isinstance(outcome, Appended) for outcome in outcomes):
        raise first


def refuse_if_any_failed(outcomes: list[AppendOutcome]) -> None:
    """Raise the first error if not all was appended: for clients that look at nothing but the status."""
    for outcome in outcomes:
        if isinstance(outcome, LakelogError):
            raise outcome


def record_result(partition: int, outcome: AppendOutcome, number: int) -> RecordResult:
    """The result of record `number` among those of one partition."""
    if isinstance(outcome, LakelogError):
        return partition, None, status_and_code(outcome)[1], outcome.message
    base = outcome.base_offset
    return partition, None if base is None else base + number, None, None
