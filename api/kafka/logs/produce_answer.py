"""The answers to Produce: what became of each batch, and who leads its partition, if another gateway does.

An append that this gateway forwards succeeds, and the answer names the leader beside the success (KIP-951).
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from api.client_topics import refreshed_topic
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, Refusal, error_code
from api.kafka.logs.culprits import RefusedRecords
from api.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from api.kafka.records.errors import Culprits, InvalidBatch
from coordinator.access.host import host_and_port
from ingest.writer import Appended, AppendOutcome
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, OffsetMismatch, SequenceGap, TopicDeleted

NO_OFFSET = -1
"""No log ends here."""

EMPTY_LOG_START = 0
"""Where the next topic of a name begins. Java begins a new epoch only where it is told a start of the log."""


@dataclass(frozen=True, slots=True)
class PendingAppend:
    """An append to a topic, as it was known, whose outcome is to come. Its batch had `size_bytes`.

    A `refused` one is no append: the leader only says whether it is a repeat. One that `follows` is not the
    first of its producer.
    """

    topic: Topic
    by_id: bool
    follows: bool
    size_bytes: int
    outcome: "asyncio.Future[AppendOutcome]"
    refused: RefusedRecords | None


Coming = PendingAppend | PartitionProduceResponse


def unknown_id() -> Refusal:
    """A topic that is named by an id which no topic has."""
    return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id; ask for the metadata")


def forgotten(why: str) -> Refusal:
    """Tell a producer that the log is gone with all that it wrote.

    If librdkafka heard first that there is no topic, and then from the next topic of the name that its
    producer is unknown there, it would take that for a fatal error. Hearing it at once, it begins a new epoch
    and repeats the batch.
    """
    return Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, why)


async def answered(
    door: Door, request: ProduceRequest, coming: list[list[Coming]], began: float
) -> ProduceResponse | None:
    """The answer to a request whose appends are `coming`, None with acks=0. It `began` at that time."""
    responses, share, leaders = [], door.here.loop_share, dict[int, BrokerRecord]()
    async for topic, parts in share.each(zip(request.topic_data, coming, strict=True)):
        answers, records, size = [], 0, 0
        async for part, data in share.each(zip(parts, topic.partition_data, strict=True)):
            if isinstance(part, PartitionProduceResponse):
                answers.append(part)
                continue
            outcome = await part.outcome
            size += part.size_bytes
            records += outcome.count if isinstance(outcome, Appended) else 0
            answer = await _placed(door, part, data.index, outcome)
            _name_leader(door, part, answer, leaders)
            answers.append(answer)
        if records:
            door.here.metrics.topic(topic.name).produced(records, size, door.here.clock.monotonic() - began)
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    endpoints = [
        NodeEndpoint(each.id, *host_and_port(each.kafka), each.rack or None) for each in leaders.values()
    ]
    return None if request.acks == 0 else ProduceResponse(responses=responses, node_endpoints=endpoints)


async def _placed(
    door: Door, part: PendingAppend, partition: int, outcome: AppendOutcome
) -> PartitionProduceResponse:
    """The answer for a batch that was given to the pipeline."""
    said: AppendOutcome | Refusal = outcome
    start = _log_start(part.topic, partition)
    if isinstance(outcome, TopicDeleted):
        start = EMPTY_LOG_START
        with suppress(LakelogError):  # so that a repeat finds the one that has the name now
            await refreshed_topic(door.here, part.topic)
        if part.by_id:
            said = unknown_id()
        elif part.follows:
            said = forgotten(outcome.message)
    elif isinstance(outcome, OffsetMismatch) and part.refused is not None:
        said = part.refused
    return response_of(partition, said, start)


def _name_leader(
    door: Door, part: PendingAppend, answer: PartitionProduceResponse, leaders: dict[int, BrokerRecord]
) -> None:
    """Name the gateway that leads where this one only forwards. A client that listens goes there."""
    if answer.error_code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        leader = door.led_elsewhere(part.topic, answer.index)
        if leader is not None:
            leaders[leader.id] = leader
            answer.current_leader = LeaderIdAndEpoch(leader.id, door.leader_epoch)


def _log_start(topic: Topic, partition: int) -> int:
    """Where the log begins, as known here. A Java producer that the log does not know any longer needs it to
    begin again.
    """
    return topic.partition(partition).log_start if topic.is_open(partition) else NO_OFFSET


def response_of(
    partition: int, outcome: "AppendOutcome | Refusal | InvalidBatch", log_start: int = NO_OFFSET
) -> PartitionProduceResponse:
    """The answer for the batch of one partition, whose log begins at `log_start`, as far as that is known."""
    answer = _said(partition, outcome)
    answer.log_start_offset = log_start
    return answer


def _said(partition: int, outcome: "AppendOutcome | Refusal | InvalidBatch") -> PartitionProduceResponse:
    match outcome:
        case Appended(base_offset=int(base), append_time_us=time_us):
            time_ms = -1 if time_us is None else time_us // 1_000
            return PartitionProduceResponse(index=partition, base_offset=base, log_append_time_ms=time_ms)
        case Appended():
            return _failed(partition, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "")
        case RefusedRecords() | InvalidBatch():
            return _failed(partition, ErrorCode(int(outcome.code)), outcome.message, outcome.culprits)
        case SequenceGap(details={"expected": 0, **rest}) if "current" not in rest:
            return _failed(partition, ErrorCode.UNKNOWN_PRODUCER_ID, outcome.message)
        case LakelogError():
            return _failed(partition, error_code(outcome), outcome.message)
    return _failed(partition, ErrorCode(int(outcome.code)), outcome.message)


def _failed(
    partition: int,
    code: ErrorCode,
    message: str,
    culprits: Culprits = (),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition,
        error_code=code,
        base_offset=NO_OFFSET,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
            for index, why in culprits
        ],
        error_message=message or None,
    )
