"""All topics and groups as the lists of the console show them, of the last look that is not too old.

A look reads the one table over each topic, not its partitions, and what this gateway leads it knows itself.
So a list of a thousand topics with the lag of all groups costs a look at a thousand tables at most; and looks
take one part in twenty of the time, whatever the store.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from api.client_topics import listed_topic, listed_topics
from api.gateway import Gateway
from coordinator.groups.state.group import Group
from ingest.pending_tasks import shared_task
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError
from log_tables.record import timestamp_us
from log_tables.sql.lag import Lag, lag_in
from log_tables.table.snapshot import Segment

OLD_S = 2.0
"""The age at which there is another look."""

LOOKING_MAX = 0.05
"""The part of the time that looks take at most: on an object store each get is paid."""

THREADS = 8
"""Tables that are looked at at a time: on an object store a look mostly waits."""

RATE_MS = 30_000
"""The time over which rates are counted."""

_RETRY_S = 30.0


class PartitionState(NamedTuple):
    """Where a partition begins and ends, and its segments in order."""

    start: int
    end: int
    segments: Sequence[Segment]


class TopicState(NamedTuple):
    """A topic at a look. `rate` and `bytes_rate` are per second, of the last 30; `newest_ms` is the time of
    the last append, 0 without one, and `latest_ms` the latest record time. `failed` says why its table could
    not be read.
    """

    name: str
    topic_id: str
    compacted: bool
    partitions: Mapping[int, PartitionState]
    partition_count: int
    records: int
    size_bytes: int
    rate: float
    bytes_rate: float
    newest_ms: int
    failed: str = ""
    latest_ms: int = 0


class GroupLag(NamedTuple):
    """How far a group is behind in a topic: in all partitions together, in seconds the worst."""

    group: str
    topic: str
    lag: Lag
    partitions: int


class ClusterState(NamedTuple):
    """All of it at one moment, `at_ms` since 1970. The lags are by topic and by group."""

    at_ms: int
    topics: Mapping[str, TopicState]
    groups: Mapping[str, Group]
    of_topic: Mapping[str, Sequence[GroupLag]]
    of_group: Mapping[str, Sequence[GroupLag]]


class ClusterIndex:
    """The newest look of one gateway. Used on the event loop."""

    def __init__(self, here: Gateway) -> None:
        self._here = here
        self._look: ClusterState | None = None
        self._due = 0.0
        self._changes = -1
        self._looking: asyncio.Task[ClusterState] | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lakelog-look")
        self._known: dict[str, tuple[object, TopicState]] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    async def look(self) -> ClusterState:
        """The newest look. After one that is too old there is another, once for all who ask.

        Raises LakelogError.
        """
        if self._look is not None and self._here.clock.monotonic() < self._due and not self._has_changed():
            return self._look
        if self._looking is not None and not self._looking.done() and self._has_changed():
            await asyncio.shield(self._looking)  # it may have looked before the change
        if self._looking is None or self._looking.done():
            self._changes = self._here.changes.made
            self._looking = shared_task(self._again())
        return await asyncio.shield(self._looking)

    def topic(self, name: str) -> TopicState:
        """The state of one topic, as it is now; blocking. Raises UnknownTopic, InvalidTopicName."""
        return self._state(listed_topic(self._here, name))

    def _has_changed(self) -> bool:
        return self._changes != self._here.changes.made

    async def _again(self) -> ClusterState:
        begun = self._here.clock.monotonic()
        await asyncio.to_thread(self._here.cluster.refresh)
        groups = {group.id: group for group in await self._here.shard_manager.groups()}
        self._look = await asyncio.to_thread(self._looked, groups)
        now = self._here.clock.monotonic()
        self._due = now + max(OLD_S, (now - begun) / LOOKING_MAX)
        return self._look

    def _looked(self, groups: Mapping[str, Group]) -> ClusterState:
        topics = listed_topics(self._here)
        now_ms = self._here.clock.now_ms()
        states = {state.name: state for state in self._threads.map(self._state, topics)}
        self._forget_all_but(topics)
        of_topic: dict[str, list[GroupLag]] = {}
        of_group: dict[str, list[GroupLag]] = {}
        for group in groups.values():
            for found in lags_of(group, states, now_ms):
                of_topic.setdefault(found.topic, []).append(found)
                of_group.setdefault(group.id, []).append(found)
        return ClusterState(now_ms, states, groups, of_topic, of_group)

    def _forget_all_but(self, topics: Sequence[Topic]) -> None:
        """Keep nothing of deleted topics. Pages of topics add some meanwhile, in other threads."""
        names, ids = {topic.name for topic in topics}, {topic.topic_id for topic in topics}
        for name in {*self._known} - names:
            self._known.pop(name, None)
        for topic_id in {*self._failed} - ids:
            self._failed.pop(topic_id, None)

    def _state(self, topic: Topic) -> TopicState:
        """The state of one topic. A table that cannot be read is tried again later, and is no reason to show
        nothing of the others.
        """
        now = self._here.clock.monotonic()
        due, said = self._failed.get(topic.topic_id, (0.0, ""))
        if now < due:
            return _nothing(topic, said)
        try:
            found = self._partitions(topic)
        except LakelogError as error:
            self._failed[topic.topic_id] = (now + _RETRY_S, error.message)
            return _nothing(topic, error.message)
        self._failed.pop(topic.topic_id, None)
        # The tuples of segments are values: the same objects mean that nothing has changed.
        mark = tuple((number, id(state.segments), state.start) for number, state in found.items())
        known = self._known.get(topic.name)
        now_ms = self._here.clock.now_ms()
        if known is not None and known[0] == mark and known[1].newest_ms < now_ms - RATE_MS:
            return known[1]
        made = _summed(topic, found, now_ms)
        self._known[topic.name] = mark, made
        return made

    def _partitions(self, topic: Topic) -> dict[int, PartitionState]:
        opened = dict(topic.opened())
        leads = {number: log for number, log in opened.items() if log.leading}
        found = {}
        if len(leads) < topic.partition_count:
            folded = topic.table().refresh()
            for number in range(topic.partition_count):
                segments = folded.of(number)
                start = segments[0].base_offset if segments else folded.end(number)
                found[number] = PartitionState(start, folded.end(number), segments)
        for number, log in opened.items():
            here = log.snapshot
            if number not in found or here.high_watermark >= found[number].end:
                found[number] = PartitionState(here.log_start, here.high_watermark, here.segments)
        return found


def lags_of(group: Group, topics: Mapping[str, TopicState], now_ms: int) -> list[GroupLag]:
    """The lag of a group in each topic of which it has committed offsets."""
    found: dict[str, tuple[int, float, int, int]] = {}
    for at in group.offsets:
        committed, topic = group.committed(at), topics.get(at.topic)
        state = None if topic is None else topic.partitions.get(at.partition)
        if committed is None or state is None:
            continue
        behind = behind_of(state, committed.offset, now_ms)
        records, seconds, size, count = found.get(at.topic, (0, 0.0, 0, 0))
        found[at.topic] = (
            records + behind.records,
            max(seconds, behind.seconds),
            size + behind.size_bytes,
            count + 1,
        )
    return [
        GroupLag(group.id, topic, Lag(records, seconds, size), count)
        for topic, (records, seconds, size, count) in sorted(found.items())
    ]


def behind_of(state: PartitionState, offset: int, now_ms: int) -> Lag:
    """The lag of a reader whose next record is at `offset`."""
    begin = max(offset, state.start)
    if begin >= state.end:
        return Lag()
    first = bisect_left(state.segments, begin, key=lambda segment: segment.last_offset)
    return lag_in(state.segments[first:], begin, state.end, now_ms)


def _nothing(topic: Topic, said: str) -> TopicState:
    return TopicState(
        topic.name, topic.topic_id, topic.config.compacted, {}, topic.partition_count, 0, 0, 0.0, 0.0, 0, said
    )


def _summed(topic: Topic, found: Mapping[int, PartitionState], now_ms: int) -> TopicState:
    records = size = newest = recent = recent_size = 0
    latest = ""
    since = now_ms - RATE_MS
    for state in found.values():
        for segment in state.segments:
            records += segment.records
            size += segment.size
        for segment in reversed(state.segments):
            if segment.modification_time < since:
                break
            recent += segment.records
            recent_size += segment.size
        if state.segments:
            newest = max(newest, state.segments[-1].modification_time)
            latest = max(latest, *(segment.max_timestamp for segment in state.segments))
    seconds = RATE_MS / 1000
    return TopicState(
        topic.name,
        topic.topic_id,
        topic.config.compacted,
        found,
        topic.partition_count,
        records,
        size,
        recent / seconds,
        recent_size / seconds,
        newest,
        latest_ms=timestamp_us(latest) // 1000 if latest else 0,
    )
