"""Kafka's clients of a simulated world: what they send and hear above sockets."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.clients import BATCH, Client, Task
from tests.kit.history import At, Commit, Doing, History, Part, Place, Placed, Poll, Row, Rows, Write
from tests.kit.kafka_asking import Asker, Closed
from tests.kit.record_batches import Sent, kafka_python_batch, kafka_python_reads
from tests.simulation.network import Network
from tests.simulation.scheduler import Process
from tests.simulation.security import Credential
from tests.simulation.streams import Disconnected

PRODUCE, FETCH, COMMIT, OFFSETS = 9, 12, 9, 9
"""The newest versions that name topics."""

ANSWER_S = 5.0
AGAIN_S = 0.1
WAIT_MS = 200

_MAYBE = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR}


class SimulatedAsker(Asker):
    """A connection over the simulated network."""

    def __init__(self, network: Network, source: Process, address: str) -> None:
        self._number, self._left = 0, b""
        try:
            self._stream = network.connect(source, address)
        except Disconnected:
            raise Closed from None

    def write(self, data: bytes) -> None:
        try:
            self._stream.send(data)
        except Disconnected:
            raise Closed from None

    def _read(self, size: int) -> bytes:
        while len(self._left) < size:
            try:
                self._left += self._stream.receive(ANSWER_S)
            except (Disconnected, TimeoutError):
                raise Closed from None
        found, self._left = self._left[:size], self._left[size:]
        return found

    def close(self) -> None:
        self._stream.leave()


class KafkaGateways:
    """The gateways' doors for Kafka's clients: one that answers is kept."""

    def __init__(
        self, network: Network, source: Process, addresses: Sequence[str], credential: Credential
    ) -> None:
        self._network, self._source, self._addresses = network, source, addresses
        self._credential = credential
        self._next = 0
        self._asker: SimulatedAsker | None = None
        self.clock = source.clock

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer. Raises Closed where there is none: the request may have been carried out."""
        try:
            if self._asker is None:
                self._asker = SimulatedAsker(
                    self._network, self._source, self._addresses[self._next % len(self._addresses)]
                )
                if self._credential.key:  # an open gateway has no mechanism, and needs none
                    self._asker.key(self._credential.key)
            return self._asker.ask(request, version)
        except Closed:
            self.move_on()
            raise

    def move_on(self) -> None:
        """Ask another one from now on."""
        if self._asker is not None:
            self._asker.close()
        self._asker, self._next = None, self._next + 1


class KafkaProducer(Client):
    """An idempotent producer: repeats each batch until it is acknowledged."""

    def __init__(self, task: Task, gateways: KafkaGateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)  # type: ignore[arg-type]
        self._kafka, self._sent = gateways, 0
        self._id = int(gateways.clock.random_hex(12), 16)

    def step(self) -> None:
        values = tuple(f"{self.task.name}-{self._sent + index}" for index in range(BATCH))
        number, self._sent = self._sent, self._sent + BATCH
        write = Write(self.task.name, (Part(self.task.at, values),), number)
        batch = kafka_python_batch(
            [Sent(None, msgspec.json.encode(value), self._kafka.clock.now_ms()) for value in values],
            stamp=(False, self._id, 0, number),
        )
        data = TopicProduceData(
            name=self.task.at.topic,
            partition_data=[PartitionProduceData(index=self.task.at.partition, records=batch)],
        )
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        with self._history.doing(write) as doing:
            while not self._is_settled(request, doing):
                if self._stop.is_set():
                    return
                self._pause()

    def _is_settled(self, request: ProduceRequest, doing: Doing) -> bool:
        try:
            answer = self._kafka.ask(request, PRODUCE)
        except Closed:
            return False
        part = answer.responses[0].partition_responses[0]
        if part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            doing.ok(Placed((None,) * BATCH))
            return True
        if part.error_code:
            assert part.error_code not in _FATAL, f"{ErrorCode(part.error_code)!r}: {part.error_message}"
            self._kafka.move_on()
            return False
        base = part.base_offset
        doing.ok(Placed(tuple(range(base, base + BATCH)) if base >= 0 else (None,) * BATCH))
        return True


_FATAL = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
}


class KafkaMember(Client):
    """A member of a group by KIP-848: reads its share of a topic, and commits each poll with its epoch.

    It is a member under one id until it is fenced or unknown; then it drops what it has, and joins again.
    """

    _lives = 0

    def __init__(self, task: Task, gateways: KafkaGateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)  # type: ignore[arg-type]
        self._kafka = gateways
        self._topic_id = b""
        self._begin()

    def _begin(self) -> None:
        self._lives += 1
        self._member, self._epoch = f"{self.task.name}-{self._lives}", 0
        self._owned: frozenset[int] = frozenset()
        self._says_all, self._beat_at = True, 0.0
        self._positions: dict[int, int] = {}

    def run(self) -> None:
        super().run()
        try:
            self._heartbeat(-1)
        except Closed:
            return

    def step(self) -> None:
        try:
            if self._kafka.clock.monotonic() >= self._beat_at and not self._beat():
                self._pause()
                return
            if not self._owned:
                self._pause()
                return
            if self._find_positions():
                self._poll()
        except Closed:
            self._says_all = True
            self._pause()

    # Membership.

    def _beat(self) -> bool:
        answer = self._heartbeat(self._epoch)
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._begin()
            return False
        if answer.error_code:
            self._says_all = True
            self._kafka.move_on()
            return False
        self._says_all = False
        self._epoch = answer.member_epoch
        self._beat_at = self._kafka.clock.monotonic() + min(1.0, answer.heartbeat_interval_ms / 1_000)
        if answer.assignment is not None:
            given = frozenset(
                partition for each in answer.assignment.topic_partitions for partition in each.partitions
            )
            for each in answer.assignment.topic_partitions:
                self._topic_id = each.topic_id
            if given != self._owned:
                self._owned = given
                self._positions = {at: place for at, place in self._positions.items() if at in given}
                self._beat_at = 0.0
        return True

    def _heartbeat(self, epoch: int) -> Any:
        says = epoch == 0 or self._says_all
        owned = [HeartbeatTopicPartitions(topic_id=self._topic_id, partitions=sorted(self._owned))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.task.group,
            member_id=self._member,
            member_epoch=epoch,
            rebalance_timeout_ms=10_000 if says else -1,
            subscribed_topic_names=[self.task.at.topic] if says else None,
            topic_partitions=None if epoch < 0 else (owned if self._topic_id and epoch else []),
        )
        return self._kafka.ask(request)

    # Records.

    def _find_positions(self) -> bool:
        missing = sorted(self._owned - self._positions.keys())
        if not missing:
            return True
        topic = OffsetFetchRequestTopics(name=self.task.at.topic, partition_indexes=missing)
        group = OffsetFetchRequestGroup(
            group_id=self.task.group, member_id=self._member, member_epoch=self._epoch, topics=[topic]
        )
        [found] = self._kafka.ask(OffsetFetchRequest(groups=[group]), OFFSETS).groups
        if found.error_code:
            self._beat_at = 0.0
            return False
        for part in found.topics[0].partitions:
            if part.error_code:
                return False
            self._positions[part.partition_index] = max(0, part.committed_offset)
        return True

    def _poll(self) -> None:
        topic = FetchTopic(
            topic=self.task.at.topic,
            partitions=[
                FetchPartition(
                    partition=partition, fetch_offset=self._positions[partition], partition_max_bytes=4_000
                )
                for partition in sorted(self._owned)
            ],
        )
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, topics=[topic])
        with self._history.doing(Poll(self.task.group, self.task.name)) as doing:
            answer = self._kafka.ask(request, FETCH)
            rows = [row for each in answer.responses for part in each.partitions for row in self._rows(part)]
            doing.ok(Rows(tuple(rows)))
        for row in rows:
            self._positions[row.at.partition] = row.offset + 1
        if rows:
            self._commit({row.at: row.offset + 1 for row in rows})

    def _rows(self, part: Any) -> list[Row]:
        if part.error_code or not part.records:
            return []
        partition = part.partition_index
        return [
            Row(At(self.task.at.topic, partition), each.offset, msgspec.json.decode(each.value or b"null"))
            for each in kafka_python_reads(bytes(part.records))
            if each.offset >= self._positions[partition]
        ]

    def _commit(self, ends: Mapping[At, int]) -> None:
        parts = [
            OffsetCommitRequestPartition(partition_index=at.partition, committed_offset=end)
            for at, end in ends.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.task.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member,
            topics=[OffsetCommitRequestTopic(name=self.task.at.topic, partitions=parts)],
        )
        places = tuple(Place(at, end) for at, end in ends.items())
        commit = Commit(self.task.group, places, self.task.name)
        with self._history.doing(commit) as doing:
            answer = self._kafka.ask(request, COMMIT)
            codes = {part.error_code for each in answer.topics for part in each.partitions}
            if codes == {0}:
                doing.ok()
            elif not codes & _MAYBE and 0 not in codes:
                doing.failed()
        if codes != {0}:
            # What it could not commit it reads again, from where the group is.
            self._positions.clear()
            self._beat_at = 0.0


KAFKA_CLIENTS: Mapping[str, type[KafkaProducer] | type[KafkaMember]] = {
    "kafka produce": KafkaProducer,
    "kafka read": KafkaMember,
}
