"""The requests of a transaction, as a test sends them itself."""

from typing import Any, NamedTuple

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from api.kafka.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.kafka_asking import Asker
from tests.kit.record_batches import Sent, kafka_python_batch

TIMEOUT_MS = 60_000


class Held(NamedTuple):
    """A producer, as InitProducerId gives it."""

    id: str
    producer_id: int
    epoch: int

    @property
    def place(self) -> dict[str, Any]:
        return {"transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch}


def begin(asking: Asker, name: str, timeout_ms: int = TIMEOUT_MS) -> Held:
    """Begin with an id."""
    answer = asking.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
    assert answer.error_code == ErrorCode.NONE
    return Held(name, answer.producer_id, answer.producer_epoch)


def produce(asking: Asker, held: Held, topic: str, value: bytes, sequence: int = 0, version: int = 12) -> Any:
    """The answer of the only partition."""
    stamp = True, held.producer_id, held.epoch, sequence
    part = PartitionProduceData(index=0, records=kafka_python_batch([Sent(None, value, 1)], stamp=stamp))
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    asked = ProduceRequest(transactional_id=held.id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
    return asking.ask(asked, version).responses[0].partition_responses[0]


def add(asking: Asker, held: Held, topics: dict[str, list[int]], version: int = 3) -> dict[str, list[int]]:
    """The codes of the partitions of each topic."""
    asked = [AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in topics.items()]
    answer = asking.ask(AddPartitionsToTxnRequest(**held.place, topics=asked), version)
    return {
        each.name: [part.partition_error_code for part in each.results_by_partition]
        for each in answer.results_by_topic_v3_and_below
    }


def pend(asking: Asker, held: Held, group: str, topic: str, offset: int, version: int = 3) -> int:
    """Add the offset of a partition of `topic`; its code."""
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=[part])]
    answer = asking.ask(TxnOffsetCommitRequest(**held.place, group_id=group, topics=topics), version)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def end(asking: Asker, held: Held, version: int, commits: bool = True) -> Any:
    """The answer to EndTxn."""
    return asking.ask(EndTxnRequest(**held.place, committed=commits), version)
