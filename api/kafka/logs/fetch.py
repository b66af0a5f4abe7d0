"""Fetch: the records of partitions from offsets on, with a wait for them (KIP-74, KIP-227, KIP-392, KIP-516).

There are no fetch sessions: the answer's session id is 0, so a client names all its partitions each time. Any
gateway answers; one of another rack than its client's sends it to one of that. Kafka gives whole batches;
here an answer begins exactly at the offset that was asked for.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from api.client_topics import current_topic, know_ids, know_names, known_name_of, known_topic_to_read
from api.kafka.clients.client import Client
from api.kafka.clients.door import ROOM_PAUSE_S, Door, epoch_code
from api.kafka.clients.errors import ErrorCode
from api.kafka.logs.partition_reads import NONE, FetchRead, PartitionRead, read_parts
from api.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from api.kafka.protocol.notation import has_more
from api.kafka.records.compression import Compression
from coordinator.access.host import host_and_port
from coordinator.access.quota_manager import QuotaKind
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import BufferFull, LakelogError, UnknownTopic
from log_tables.limits import KAFKA_ANSWER_MAX_BYTES, KAFKA_INLINE_ELEMENTS
from log_tables.partition.partition import Partition

FRESH_S = 0.02
"""How old a look at a partition may be that is led elsewhere, when a fetch begins."""

ROOM_WAIT_S = 5.0
"""How long an answer with records waits for room."""

INLINE_PARTITIONS_MAX = 64
"""More partitions are looked at in a thread: some 10 µs each."""

ZSTD_SINCE = 10
"""The version of Fetch from which on clients know zstd."""

IDS_SINCE = 13
"""The version of Fetch from which on topics are named by their ids."""


def _unknown_id() -> UnknownTopic:
    return UnknownTopic("there is no topic with this id; ask for the metadata")


@dataclass(slots=True)
class _Answer:
    """All partitions of a request, by topic in its order."""

    topics: list[tuple[FetchTopic, str, list[PartitionRead]]] = field(default_factory=list)
    parts: list[PartitionRead] = field(default_factory=list)
    leaders: dict[int, BrokerRecord] = field(default_factory=dict)

    def add(self, topic: FetchTopic, name: str, parts: list[PartitionRead]) -> None:
        self.topics.append((topic, name, parts))
        self.parts += parts

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def logs(self) -> list[Partition]:
        return [part.log for part in self.parts if part.log is not None]

    @property
    def is_urgent(self) -> bool:
        """Whether the client has something to do before it waits for records."""
        return any(
            part.code is not ErrorCode.NONE or part.read_at != NONE or part.diverging is not None
            for part in self.parts
        )


async def fetch(door: Door, client: Client, request: FetchRequest, version: int) -> FetchResponse:
    """At most KAFKA_ANSWER_MAX_BYTES, and some seconds of a quota; a client that asked for more asks on from
    there. A client that has used up its quota for long gets nothing, and hears for how long.
    """
    here = door.here
    if client.is_in_debt(QuotaKind.CONSUMER_BYTES):
        return FetchResponse(responses=[])
    wait_s = min(max(request.max_wait_ms, 0), here.settings.fetch_timeout_ms_max) / 1_000
    deadline = here.clock.monotonic() + wait_s
    answer, by_id, share = _Answer(), version >= IDS_SINCE, here.loop_share
    if by_id:
        await know_ids(here, (topic.topic_id.hex() for topic in request.topics))
    else:
        names = (topic.topic for topic in request.topics)
        await know_names(here, names, partial(client.caller.allows, Operation.READ, ResourceType.TOPIC))
    async for topic in share.each(request.topics):
        name = known_name_of(here, topic.topic_id.hex()) if by_id else topic.topic
        answer.add(topic, name or "", await _found(door, client, name, topic, by_id))
    await _open(door, answer.parts)
    await _direct(door, client, request.rack_id, answer)
    await here.tails.follow(answer.logs, FRESH_S)
    async for part in share.each(answer.parts):
        part.compare()

    async def is_ready(_: Sequence[LakelogError]) -> bool:
        enough = await _available(answer) >= request.min_bytes
        return enough or answer.is_urgent or here.stopping.is_set()

    if await here.tails.wait_until(is_ready, answer.logs, deadline, share):
        _check_again(client, answer)
    began = here.clock.monotonic()
    most = min(max(1, request.max_bytes), KAFKA_ANSWER_MAX_BYTES, max(1, client.fetch_max_bytes))
    available = min(most, await _available(answer))
    if available and await _has_room(door, client, available):
        with client.room.detach():  # the connection gives back its own when it ends, before a thread does
            reading = FetchRead(door.records, most, _compression(door, version))
            await read_parts([part for part in answer.parts if part.readable], reading, client.ahead)
        _keep_room(client, answer)
    await _forget_old_topics(door, answer)
    _measure(door, answer, here.clock.monotonic() - began)
    client.charge(QuotaKind.CONSUMER_BYTES, answer.size_bytes)
    return await share.maybe_in_thread(has_more(request, KAFKA_INLINE_ELEMENTS), lambda: _response(answer))


async def _found(
    door: Door, client: Client, name: str | None, asked: FetchTopic, by_id: bool
) -> list[PartitionRead]:
    share = door.here.loop_share
    parts = [PartitionRead(each, by_id) async for each in share.each(asked.partitions)]
    try:
        if name is None:
            raise _unknown_id()
        client.caller.check(Operation.READ, ResourceType.TOPIC, name)
        topic = known_topic_to_read(door.here, name)
        if by_id and topic.topic_id != asked.topic_id.hex():
            raise _unknown_id()
    except LakelogError as error:
        async for part in share.each(parts):
            part.fail(error)
        return parts
    epoch = door.leader_epoch
    for part in parts:
        part.topic, part.code = topic, epoch_code(part.asked.current_leader_epoch, epoch)
    return parts


async def _open(door: Door, parts: Sequence[PartitionRead]) -> None:
    """Open the partitions, those that are not open in this process side by side: each asks the store."""

    async def open_late(part: PartitionRead) -> None:
        async with door.looks.turn:
            await asyncio.to_thread(part.open)

    late = []
    async for part in door.here.loop_share.each(parts):
        topic, number = part.topic, part.asked.partition
        if topic is None:
            continue
        if topic.is_open(number) or not 0 <= number < topic.partition_count:
            part.open()
        else:
            late.append(part)
    await door.looks.each(open_late, late)


async def _direct(door: Door, client: Client, rack: str, answer: _Answer) -> None:
    """Send a client to the gateways of its own rack (KIP-392), any other one to those that lead (KIP-951).

    A client that was sent on, and comes back soon, does not know that gateway yet, or cannot reach it.
    """
    here, racks = door.here, door.read_replicas() if rack else None
    if rack and rack == here.settings.broker_rack:
        return
    now_s, epoch = here.clock.monotonic(), door.leader_epoch
    due = defaultdict[Topic, list[PartitionRead]](list)
    async for part in here.loop_share.each([part for part in answer.parts if part.readable]):
        assert part.topic is not None
        number = part.asked.partition
        if racks is not None and rack in racks:
            if client.sent_on.is_due((part.topic.topic_id, number), now_s):
                due[part.topic].append(part)
            continue
        other = door.led_elsewhere(part.topic, number)
        if other is not None:
            answer.leaders[other.id] = other
            part.leader = LeaderIdAndEpoch(other.id, epoch)
    async for topic, parts in here.loop_share.each([*due.items()]):
        assert racks is not None
        leaders = here.leadership.leader_ids(topic, [part.asked.partition for part in parts])
        for part, leader in zip(parts, leaders, strict=True):
            part.read_at = racks.of(rack, topic, part.asked.partition, door.node_id_of(leader))


async def _available(answer: _Answer) -> int:
    """About the bytes that are there; a partition that cannot be read notes why."""
    parts = [part for part in answer.parts if part.readable]
    if len(parts) <= INLINE_PARTITIONS_MAX and all(
        part.log is not None and part.log.reaches(part.asked.fetch_offset) for part in parts
    ):
        return sum(part.available() for part in parts)
    return await asyncio.to_thread(lambda: sum(part.available() for part in parts))


def _check_again(client: Client, answer: _Answer) -> None:
    """The rights of a client may have changed while it waited."""
    for _, name, parts in answer.topics:
        if any(part.code is ErrorCode.NONE for part in parts) and not client.caller.may(
            Operation.READ, ResourceType.TOPIC, name
        ):
            for part in parts:
                part.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _has_room(door: Door, client: Client, limit: int) -> bool:
    """Whether the memory for an answer is there within ROOM_WAIT_S. Without it the answer has no records, and
    the client asks once more.
    """
    until = door.here.clock.monotonic() + ROOM_WAIT_S
    while True:
        try:
            client.room.settle(2 * limit)  # the records that it is made of, too
            return True
        except BufferFull:
            if door.here.clock.monotonic() > until:
                return False
            await asyncio.sleep(ROOM_PAUSE_S)


def _keep_room(client: Client, answer: _Answer) -> None:
    """Hold what the answer takes: more than was asked for, if its first record is larger. Without room for
    that the answer has no records, and the client asks once more. A record that is larger than all the room
    takes all of it.
    """
    try:
        client.room.settle(min(answer.size_bytes, client.room.limit_bytes))
    except BufferFull:
        client.room.settle(0)
        for part in answer.parts:
            part.drop()


def _compression(door: Door, version: int) -> Compression:
    """How records are packed: by a codec that a client of this version knows (KIP-110)."""
    wanted = Compression[door.here.settings.kafka_compression_type.upper()]
    return Compression.NONE if wanted is Compression.ZSTD and version < ZSTD_SINCE else wanted


async def _forget_old_topics(door: Door, answer: _Answer) -> None:
    """See to it that the next request finds the topic as it is now, where this one met an old one."""
    met = {(part.topic, type(part.error)): part.error for part in answer.parts}
    for (topic, _), error in met.items():
        if error is not None and topic is not None:
            with suppress(LakelogError):
                await current_topic(door.here, topic, topic.partition_count, error)


def _measure(door: Door, answer: _Answer, seconds: float) -> None:
    if not answer.size_bytes:
        return
    for _, name, parts in answer.topics:
        records = sum(0 if part.records is None else part.records.count for part in parts)
        if records:
            size = sum(part.size_bytes for part in parts)
            door.here.metrics.topic(name).fetched(records, size, seconds)


def _response(answer: _Answer) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[part.data() for part in parts],
            )
            for topic, _, parts in answer.topics
        ],
        node_endpoints=[
            NodeEndpoint(each.id, *host_and_port(each.kafka), each.rack or None)
            for each in answer.leaders.values()
        ],
    )
