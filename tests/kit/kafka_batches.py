"""Batches that a test sends one after the other over a connection, and waits for none."""

from collections import deque
from collections.abc import Sequence

from api.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.kit.kafka_asking import Asker
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.support import WAIT_S

VERSION = 9


class BatchSender:
    """A connection of its own. Answers come in the order of the batches; to those with acks 0 come none."""

    def __init__(self, port: int) -> None:
        self._asker = Asker(port)
        self._waiting: deque[tuple[str, int]] = deque()

    def send(
        self,
        at: tuple[str, int],
        values: Sequence[bytes],
        acks: int = -1,
        stamp: tuple[int, int, int] = (-1, -1, -1),
    ) -> None:
        """Send a batch to a topic's partition; `stamp` is a producer's id, epoch and sequence."""
        batch = kafka_python_batch([Sent(None, each, 1_000) for each in values], stamp=(False, *stamp))
        part = PartitionProduceData(index=at[1], records=batch)
        topic = TopicProduceData(name=at[0], partition_data=[part])
        request = ProduceRequest(acks=acks, timeout_ms=int(WAIT_S * 1_000), topic_data=[topic])
        self._asker.send(request, VERSION)
        if acks:
            self._waiting.append(at)

    def answer(self) -> PartitionProduceResponse:
        """The answer to the first batch that has none yet."""
        name, partition = self._waiting.popleft()
        answer = self._asker.answer(ProduceRequest, VERSION)
        assert isinstance(answer, ProduceResponse)
        (topic,) = answer.responses
        (part,) = topic.partition_responses
        assert (topic.name, part.index) == (name, partition)
        return part

    def close(self) -> None:
        self._asker.close()
