"""The write path's front: the partitions that this process leads, and appending to them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from weakref import WeakKeyDictionary

import msgspec

from ingest.accumulator import Accumulator, Authored, BatchLimits, BeginCommit, Ticket
from ingest.buffer import Room
from ingest.commit_budget import CommitBucket, commit_budget
from ingest.merge_debt import MergeDebt
from ingest.opening import disk_bounds
from ingest.partitioner import StickyPartitioner
from ingest.pending_tasks import PendingTasks, shared_task
from ingest.periodic_task import FailureLog
from ingest.request_trace import Attributes, RequestTrace, Span, Tracer
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic, is_internal
from log_tables.errors import LakelogError, NotLeader, OffsetMismatch, SequenceGap, StaleProducerEpoch
from log_tables.limits import PART_BYTES
from log_tables.partition.partition import AppendRequest, SequencedAppend
from log_tables.store.disk_room import DiskRoom
from log_tables.store.store import requests_are_paid

COMMIT_THREADS = 16
"""Commits under way at once: they wait for the disk, and a slow partition must not stop the others."""

CLAIM_THREADS = 4
"""Partitions that are opened, refreshed or claimed at once: appends to led partitions wait for none."""

FLUSH_AGAIN_S = 0.01
"""How often a closing writer checks whether records that it accepted before are sequenced now."""

_log = logging.getLogger(__name__)


class Acks(Enum):
    """When a produce request is answered: accepted, sequenced by the leader, durable."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Appended(msgspec.Struct, frozen=True):
    """The offsets of appended records.

    `base_offset` is None for a repeat whose offset is forgotten, and with acks=0; `append_time_us` is set
    where the topic stamps its records itself (LogAppendTime) and acks is all.
    """

    partition: int
    base_offset: int | None
    count: int
    duplicate: bool = False
    append_time_us: int | None = None


AppendOutcome = Appended | LakelogError


def room_of(room: Room, entries: Sequence[AppendRequest]) -> Room:
    """The part of `room` that is for `entries`: others may be durable long before, and give theirs back."""
    return room.part(sum(entry.size_bytes + PART_BYTES for entry in entries))


def appended(partition: int, sequenced: SequencedAppend, append_time_us: int | None) -> Appended:
    if sequenced.duplicate:
        append_time_us = sequenced.append_time_us
    return Appended(partition, sequenced.base_offset, sequenced.count, sequenced.duplicate, append_time_us)


@dataclass(slots=True)
class _TopicWriter:
    """The accumulators and the sticky partition of one topic."""

    sticky: StickyPartitioner = field(default_factory=StickyPartitioner)
    accumulators: dict[int, Accumulator] = field(default_factory=dict)
    claims: "dict[int, asyncio.Task[None]]" = field(default_factory=dict)
    releases: "dict[int, asyncio.Task[None]]" = field(default_factory=dict)

    def is_committing(self, partition: int) -> bool:
        accumulator = self.accumulators.get(partition)
        return accumulator is not None and accumulator.committing


async def _added(accumulator: Accumulator | None, entry: AppendRequest, only_in: int | None = None) -> Ticket:
    """Raises NotLeader if there is no accumulator, and what Accumulator.add raises."""
    if accumulator is None:
        raise NotLeader("this gateway does not lead the partition; repeat the request")
    term = accumulator.partition.term
    try:
        return accumulator.add(entry, only_in)
    except (OffsetMismatch, SequenceGap, StaleProducerEpoch):
        # Another gateway's appends since it took over are not known before a refresh. And the state that
        # refused the records may have been void with its term, unknown here.
        await asyncio.to_thread(accumulator.partition.refresh, True)
        if not accumulator.leading or accumulator.partition.term != term:
            raise NotLeader("leadership has moved; repeat the request") from None
        raise


class Writer:
    """Appends to every topic of a cluster. Used on the event loop; `claiming` has threads for what comes
    before an append. The commits of all topics but internal ones share a `budget`, if there is one.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        clock: Clock,
        committed: Callable[[str, int, float], None] = lambda _topic, _records, _seconds: None,
        tracer: Tracer | None = None,
        failures: FailureLog | None = None,
        authored: Callable[[Topic, int, Sequence[SequencedAppend]], None] | None = None,
    ) -> None:
        """`committed` is called for every commit: with its topic, its records, and the seconds it took.
        `failures` logs those that are no producer's. `authored` is called as `Authored`, for a partition of a
        topic that is not internal.
        """
        self._authored = authored
        self._tracer, self._failures = tracer, failures or FailureLog()
        self._cluster, self._settings, self._clock, self._committed = cluster, settings, clock, committed
        self._limits = BatchLimits(settings.linger_ms / 1000, settings.batch_size)
        self.budget = commit_budget(settings, requests_are_paid(cluster.store.url), clock)
        self.debt = MergeDebt(settings, clock)
        self.room = DiskRoom(cluster.store, disk_bounds(settings), cluster.clock)
        self._executor = ThreadPoolExecutor(COMMIT_THREADS, thread_name_prefix="commit")
        self.claiming = ThreadPoolExecutor(CLAIM_THREADS, thread_name_prefix="claim")
        self._routes: WeakKeyDictionary[Topic, _TopicWriter] = WeakKeyDictionary()
        self._tasks = PendingTasks()
        self._closed = False

    def sticky_partition(self, topic: Topic, among: Sequence[int] = ()) -> int:
        """The partition for records without a key now: one `among` these, if there are any."""
        return self._route(topic).sticky.partition(topic.partition_count, among)

    async def append(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]], acks: Acks, room: Room
    ) -> list[AppendOutcome]:
        """Append each entry to its partition, those of one in order; one outcome for each.

        Failed records were not written, unless the error is OutcomeUnknown. NotLeader stands for a partition
        that was not claimed by `accumulator_for`, or is lost. After a refused request to a partition, the
        following ones are refused for the same reason. With acks 1 the answer comes before the records are
        durable: then `room` is detached, and given back when they are.
        """
        if self._closed:
            return [NotLeader("the gateway is stopping; repeat the request elsewhere")] * len(parts)
        tickets = await self._sequence(topic, parts)
        if acks is Acks.ALL:
            return await self._durable(parts, tickets)
        taken = [
            entry
            for (_, entry), ticket in zip(parts, tickets, strict=True)
            if not isinstance(ticket, LakelogError)
        ]
        # What is refused may be repeated elsewhere, and needs its room there.
        kept = room.detach() if len(taken) == len(parts) else room_of(room, taken)
        self._tasks.start(self._finish(topic, parts, tickets, kept))
        return [
            ticket if isinstance(ticket, LakelogError) else appended(part[0], ticket[0], None)
            for part, ticket in zip(parts, tickets, strict=True)
        ]

    def sequence_now(
        self, topic: Topic, partition: int, entry: AppendRequest, term: int | None = None
    ) -> Ticket | None:
        """The ticket of `entry`, which is sequenced now; None where that takes a wait: see `sequence`.

        Raises BufferFull when commits cost too much, StoreFull when the store has no room.
        """
        accumulator = self._accumulators(topic).get(partition)
        if self._closed or accumulator is None or not accumulator.leading:
            return None
        self.check_budget(topic, [(partition, entry)])
        try:
            return accumulator.add(entry, term)
        except LakelogError:
            return None

    async def sequence(
        self, topic: Topic, partition: int, entry: AppendRequest, term: int | None = None
    ) -> Ticket:
        """The ticket of `entry`. Raises what refuses it; NotLeader if the partition was not claimed by
        `accumulator_for`, or is lost, or leads in another term than the one given; BufferFull when commits
        cost too much, StoreFull when the store has no room.
        """
        if self._closed:
            raise NotLeader("the gateway is stopping; repeat the request elsewhere")
        self.check_budget(topic, [(partition, entry)])
        return await _added(self._accumulators(topic).get(partition), entry, term)

    def check_budget(self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]]) -> None:
        """Raise BufferFull when commits cost too much, and appending `parts` would need more of them here, or
        would go to a partition with too many unmerged segments; StoreFull when the store has no room.

        Internal topics and committed transactions stand outside: a poll must not wait behind produce.
        """
        overdrawn, full = self.budget is not None and self.budget.overdrawn, self.room.full is not None
        if not (overdrawn or full or self.debt.refuses) or is_internal(topic.name):
            return
        if full and not all(entry.of_transaction for _, entry in parts):
            self.room.check()
        accumulators = self._accumulators(topic)
        for index, entry in parts:
            accumulator = None if entry.of_transaction else accumulators.get(index)
            if accumulator is not None and accumulator.leading:
                self.debt.check(accumulator.partition)
                if self.budget is not None and overdrawn:
                    raise self.budget.overdrawn_error()

    async def _sequence(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]]
    ) -> list[Ticket | LakelogError]:
        tickets: list[Ticket | LakelogError] = []
        refused: dict[int, LakelogError] = {}
        accumulators = self._accumulators(topic)
        for partition, entry in parts:
            # After a refusal leadership may move, and with it the reason goes: to accept the later records
            # alone would say to their producer that the earlier ones are there.
            if partition in refused:
                tickets.append(refused[partition])
                continue
            try:
                tickets.append(await _added(accumulators.get(partition), entry))
            except LakelogError as error:
                refused[partition] = error
                tickets.append(error)
        return tickets

    async def _durable(
        self, parts: Sequence[tuple[int, AppendRequest]], tickets: Sequence[Ticket | LakelogError]
    ) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = []
        # From the last one on, which is mostly durable last: then there is only one wait.
        for (partition, _), ticket in zip(reversed(parts), reversed(tickets), strict=True):
            if isinstance(ticket, LakelogError):
                outcomes.append(ticket)
                continue
            sequenced, done = ticket
            try:
                outcomes.append(appended(partition, sequenced, await asyncio.shield(done)))
            except LakelogError as error:
                outcomes.append(error)
        return outcomes[::-1]

    async def _finish(
        self,
        topic: Topic,
        parts: Sequence[tuple[int, AppendRequest]],
        tickets: Sequence[Ticket | LakelogError],
        room: Room,
    ) -> None:
        """Finish an append after its answer."""
        with room:
            for outcome, ticket in zip(await self._durable(parts, tickets), tickets, strict=True):
                if isinstance(outcome, LakelogError) and not isinstance(ticket, LakelogError):
                    _log.warning(
                        "records of %s answered before they were durable are lost: %s", topic.name, outcome
                    )

    def leads(self, topic: Topic, *partitions: int) -> bool:
        """Whether records may be appended to all `partitions` here, as far as this process knows."""
        found = map(self._accumulators(topic).get, partitions)
        return all(accumulator is not None and accumulator.leading for accumulator in found)

    def led_partitions(self) -> list[tuple[Topic, int]]:
        """Every partition that this process leads, as far as it knows."""
        return [(topic, partition) for topic, led in self.led_by_topic() for partition in led]

    def led_by_topic(self) -> Iterator[tuple[Topic, list[int]]]:
        """The partitions of each topic that this process leads, in order. Others may run in between."""
        for topic, route in [*self._routes.items()]:
            led = [partition for partition, each in sorted(route.accumulators.items()) if each.leading]
            if led:
                yield topic, led

    async def accumulator_for(self, topic: Topic, partition: int, broker: int = 0) -> Accumulator:
        """The accumulator of a partition, claimed for `broker` now unless it is led already.

        Records added there belong to this term of leadership only. Raises UnknownPartition, UnknownTopic,
        NotLeader, OutcomeUnknown, StoreUnavailable, Damaged.
        """
        route = self._route(topic)
        if not self.leads(topic, partition):
            claim = route.claims.get(partition)
            if claim is None:
                claim = route.claims[partition] = shared_task(self._claim(topic, route, partition, broker))
            await asyncio.shield(claim)
        found = route.accumulators.get(partition)
        if found is None:
            raise NotLeader(f"partition {partition} of {topic.name} was released meanwhile; try again")
        return found

    async def release(self, topic: Topic, partition: int) -> None:
        """Commit the records that wait for a partition, then stop leading it; nothing if it is not led."""
        route = self._route(topic)
        if partition not in route.releases and partition in route.accumulators:
            route.releases[partition] = shared_task(self._release(route, partition))
        if partition in route.releases:
            await asyncio.shield(route.releases[partition])

    async def _release(self, route: _TopicWriter, partition: int) -> None:
        released = route.accumulators[partition]
        try:
            await released.release()
        finally:
            if route.accumulators.get(partition) is released:
                del route.accumulators[partition]
            del route.releases[partition]

    async def forget(self) -> None:
        """Drop the state of deleted topics as soon as nothing is under way there."""
        for topic, route in [*self._routes.items()]:
            idle = not route.claims and all(each.idle for each in route.accumulators.values())
            if idle and not self._cluster.is_live(topic):
                for partition in [*route.accumulators]:
                    await self.release(topic, partition)
                self._routes.pop(topic, None)

    async def _claim(self, topic: Topic, route: _TopicWriter, partition: int, broker: int) -> None:
        try:
            if partition in route.releases:  # its end would end a term that begins before it
                await asyncio.wait((route.releases[partition],))
            loop = asyncio.get_running_loop()
            log = await loop.run_in_executor(self.claiming, self._cluster.claim, topic, partition, broker)
            if partition not in route.accumulators:
                route.accumulators[partition] = Accumulator(
                    log,
                    self._limits,
                    CommitBucket(
                        self._settings.commits_per_second_max, self._settings.commits_burst, self._clock
                    ),
                    self._clock,
                    self._executor,
                    lambda: route.sticky.sealed(partition, topic.partition_count, route.is_committing),
                    lambda records, seconds: self._committed(topic.name, records, seconds),
                    None if is_internal(topic.name) else self.budget,
                )
                route.accumulators[partition].failures = self._failures
                route.accumulators[partition].refused = self.room.refused
                route.accumulators[partition].debt = None if is_internal(topic.name) else self.debt
                route.accumulators[partition].begin_commit = self._begin_commit(topic, partition)
                route.accumulators[partition].authored = self._noted(topic, partition)
        finally:
            del route.claims[partition]

    def _noted(self, topic: Topic, partition: int) -> Authored | None:
        authored = self._authored
        if authored is None or is_internal(topic.name):
            return None
        return lambda appends: authored(topic, partition, appends)

    def _begin_commit(self, topic: Topic, partition: int) -> BeginCommit | None:
        tracer = self._tracer
        if tracer is None:
            return None

        def begin(traces: Sequence[RequestTrace], records: int, size_bytes: int) -> Span:
            attributes: Attributes = {
                "lakelog.topic": topic.name,
                "lakelog.partition": partition,
                "lakelog.records": records,
                "lakelog.bytes": size_bytes,
            }
            return tracer.begin("commit", "internal", traces[0], attributes, traces[1:])

        return begin

    async def _flush(self) -> None:
        accumulators = [a for route in self._routes.values() for a in route.accumulators.values()]
        await asyncio.gather(*(accumulator.flush() for accumulator in accumulators))

    def _accumulators(self, topic: Topic) -> Mapping[int, Accumulator]:
        route = self._routes.get(topic)
        return {} if route is None else route.accumulators

    def _route(self, topic: Topic) -> _TopicWriter:
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = _TopicWriter()
        return route

    async def start(self) -> None:
        """Begin to accept appends."""
        self._closed = False

    async def close(self) -> None:
        """Refuse new records with NotLeader, commit those that wait, end the threads."""
        self._closed = True
        await self._flush()
        while self._tasks:  # they may be sequenced only now, and then linger
            await self._tasks.wait(FLUSH_AGAIN_S, asyncio.FIRST_COMPLETED)
            await self._flush()
        self._executor.shutdown(wait=False)
        self.claiming.shutdown(wait=False)
