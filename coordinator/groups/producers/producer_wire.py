"""Requests about transactional ids, as bodies between gateways, and what came of them. Pure."""

import msgspec

from log_tables.errors import Detail, InvalidArgument, LakelogError, OutcomeUnknown, error_named
from log_tables.segments.producer_staging import ProducerFile
from log_tables.topic_partition import TopicIdPartition, TopicPartition


class _Request(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class InitProducer(_Request, frozen=True):
    """A client begins with the transactional id `id`; it had the producer id and the epoch, if any. The
    answer is Producer.
    """

    id: str
    timeout_ms: int
    producer_id: int
    epoch: int
    principal: str


class AddPartitions(_Request, frozen=True):
    """A client adds partitions to its transaction. The answer is Done."""

    id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicIdPartition, ...]


class AddOffsets(_Request, frozen=True):
    """A client adds the offsets of a group to its transaction, which is open, or (`opens`) begins with them.
    The answer is Producer, with the number of the transaction.
    """

    id: str
    producer_id: int
    epoch: int
    group: str
    opens: bool


class EndTransaction(_Request, frozen=True):
    """A client ends its transaction. `moves_on`: it takes another epoch (KIP-890). The answer is Producer."""

    id: str
    producer_id: int
    epoch: int
    commits: bool
    moves_on: bool


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """A batch of `records` that is to be staged. `opens`: it adds its partition to the transaction itself
    (KIP-890).
    """

    id: str
    producer_id: int
    epoch: int
    sequence: int
    at: TopicIdPartition
    opens: bool
    records: int = 1


class Admit(_Request, frozen=True):
    """May these batches be staged? The answer is Outcomes: the number of the transaction of each, 0 for a
    repeat.
    """

    batches: tuple[Batch, ...]


class Staged(_Request, frozen=True):
    """These batches are staged. The answer is Outcomes: 0 for each that counts."""

    file: ProducerFile


class AskOutcome(_Request, frozen=True):
    """How has transaction `number` of an id ended? The answer is Ended."""

    id: str
    number: int


class Describe(_Request, frozen=True):
    """How are these ids, or all with a transaction that is open or takes effect? The answer is Descriptions,
    without those that nobody knows.
    """

    ids: tuple[str, ...] | None


Request = InitProducer | AddPartitions | AddOffsets | EndTransaction | Admit | Staged | AskOutcome | Describe


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An error."""

    code: str
    message: str
    details: dict[str, Detail]

    def error(self) -> LakelogError:
        """The error that it says."""
        return error_named(self.code, self.message, self.details)


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Failed(_Answer, frozen=True):
    """Nothing was done, or what the error says."""

    failure: Failure


class Done(_Answer, frozen=True):
    """It is done."""


class Producer(_Answer, frozen=True):
    """The producer of an id, and the number of its transaction; `fenced` is another principal, whose producer
    it replaces.
    """

    producer_id: int
    epoch: int
    number: int = 0
    fenced: str = ""


class Outcomes(_Answer, frozen=True):
    """An outcome for each batch."""

    each: tuple[int | Failure, ...]


class Ended(_Answer, frozen=True):
    """How a transaction has ended; None: it is open."""

    committed: bool | None


class ProducerDescription(msgspec.Struct, frozen=True, array_like=True):
    """A transactional id: its producer, the state of its newest transaction by Kafka's name, and of one that
    is open or takes effect when it began (milliseconds since 1970), what it writes to, or what is left of
    that, the groups with offsets in it, and the bytes that are staged for an open one.
    """

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    principal: str
    state: str
    began_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    size_bytes: int = 0


class Descriptions(_Answer, frozen=True):
    """Ids as their coordinator has them."""

    each: tuple[ProducerDescription, ...]


Answer = Failed | Done | Producer | Outcomes | Ended | Descriptions


class _Body(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    request: Request


_bodies = msgspec.msgpack.Decoder(_Body)
_answers = msgspec.msgpack.Decoder(Answer)
encode_answer = msgspec.msgpack.Encoder().encode


def encode_request(partition: int, request: Request) -> bytes:
    """A request to the leader of a partition of `__consumer_offsets`."""
    return msgspec.msgpack.encode(_Body(partition, request))


def decode_request(body: bytes) -> tuple[int, Request]:
    """The partition and the request of such a body. Raises InvalidArgument for any other."""
    try:
        found = _bodies.decode(body)
        return found.partition, found.request
    except msgspec.MsgspecError:
        raise InvalidArgument("the body is not what gateways send; use the public API") from None


def decode_answer(body: bytes) -> Answer:
    """The answer in a body. Raises the error that it says, OutcomeUnknown for any other body."""
    try:
        answer: Answer = _answers.decode(body)
    except msgspec.MsgspecError:
        raise OutcomeUnknown(
            "another gateway answered something else; use the same version everywhere"
        ) from None
    if isinstance(answer, Failed):
        raise answer.failure.error()
    return answer


def failure_of(error: LakelogError) -> Failure:
    """An error, to be sent."""
    return Failure(error.code, error.message, error.details)
