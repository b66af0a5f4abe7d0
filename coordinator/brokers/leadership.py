"""Leadership of partitions: where a request belongs, when this gateway claims a partition, and handing over.

The truth is in the partition's table: its newest claim names a broker. A gateway leaves a partition to that
broker. It claims the partition when there is no such broker (any longer), or when the broker is silent and
cannot be reached. When two gateways claim at once, one claim wins, and the other gateway looks again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import mmh3

from coordinator.brokers.brokers import Brokers
from coordinator.brokers.peers import Peers
from ingest.accumulator import Accumulator
from ingest.periodic_task import FailureLog, PeriodicTask
from ingest.writer import Writer
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, NotLeader

CLAIM_PAUSE_S = 0.1
"""The longest of the random pauses before a partition is taken from a gateway that is gone."""

BALANCE_S = 1.0
"""How often this gateway checks whether a partition should be another gateway's."""

MOVES_MAX = 8
"""Partitions that are handed over at once."""

TOPICS_AT_ONCE = 64
"""Topics that are gone through before the event loop serves others."""

_log = logging.getLogger(__name__)

_ById = tuple[str, int]
"""The id of a topic, and one of its partitions."""


class Leadership:
    """The partitions that one gateway leads. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        writer: Writer,
        brokers: Brokers,
        peers: Peers,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        self._cluster, self._writer, self._brokers, self._peers = cluster, writer, brokers, peers
        self._clock, self._failures = clock, failures
        self._unreached: set[int] = set()
        self._moving: dict[_ById, asyncio.Future[None]] = {}
        self._offered: set[_ById] = set()
        self._leaving: list[Callable[[Topic, int], Awaitable[None]]] = []
        self._lived: tuple[int, ...] = ()
        self._announcing = PeriodicTask("announcement", BALANCE_S, self._balance_and_announce, failures)
        self._closing = False

    async def start(self) -> None:
        """Begin to hand partitions over to gateways that come."""
        self._announcing.start()

    async def close(self) -> None:
        """Hand all partitions over to the other gateways, if there are any; requests are still forwarded."""
        await self._announcing.close()
        if self._closing or not self._others():
            return
        self._closing = True
        try:
            await self._brokers.leave()
        except LakelogError as error:
            _log.warning("the other gateways do not hear that this one is leaving: %s", error)
        others, led = self._others(), self._writer.led_partitions()
        if others:
            await self._move(
                [
                    (topic, partition, _preferred_leader_of(topic, partition, others))
                    for topic, partition in led
                ]
            )

    @property
    def gateways(self) -> frozenset[str]:
        """The incarnations of all gateways that live: another set once one has come or gone."""
        known = self._brokers.all()
        return frozenset(known[each].incarnation for each in self._brokers.living() if each in known)

    def _others(self) -> tuple[int, ...]:
        return tuple(broker for broker in self._brokers.living() if broker != self._brokers.id)

    def before_hand_over(self, act: Callable[[Topic, int], Awaitable[None]]) -> None:
        """Call `act` with a partition before it is handed over, while it is still led."""
        self._leaving.append(act)

    def leader_id(self, topic: Topic, partition: int) -> int:
        """The broker that leads a partition, or will on the next request, as known here; no I/O."""
        return self.leader_ids(topic, (partition,))[0]

    def leader_ids(self, topic: Topic, partitions: Sequence[int] | None = None) -> list[int]:
        """`leader_id` of each of `partitions`, by default of all. May be asked in any thread. The list of
        gateways is read once for all of them, which takes longer than the rest of it.
        """
        partitions = range(topic.partition_count) if partitions is None else partitions
        own, known, preferred = self._brokers.id, self._brokers.all(), None
        reports: list[tuple[int, Collection[int]]] | None = None
        found = []
        for partition in partitions:
            if self._writer.leads(topic, partition):
                found.append(own)
                continue
            if reports is None:
                reports = self._reports(topic)
            leader = _reported(
                reports, partition, _claimed_by(topic, partition) if topic.is_open(partition) else 0
            )
            if leader not in known:
                preferred = preferred or self._preferred_leaders(topic)
                leader = preferred[partition]
            found.append(leader)
        return found

    def owns(self, topic: Topic, partition: int) -> bool:
        """Whether others may claim an open partition only if they take this gateway for dead
        (`Brokers.is_seen`): it leads it, or led it last and has offered it to nobody.
        """
        if self._writer.leads(topic, partition):
            return True
        claimed = _claimed_by(topic, partition) == self._brokers.id
        return claimed and (topic.topic_id, partition) not in self._offered

    def folds(self, topic: Topic) -> bool:
        """Whether this gateway keeps the table over `topic`: all that live agree on one. May be asked in any
        thread.
        """
        return self._preferred_leader(topic, 0) == self._brokers.id

    def is_first(self, name: str) -> bool:
        """Whether this gateway is the one that does something for `name`: all that live agree on one. May be
        asked in any thread.
        """
        return (
            preferred_leaders(name, 1, self._brokers.living() or (self._brokers.id,))[0] == self._brokers.id
        )

    def is_led(self, topic: Topic) -> bool:
        """Whether somebody appends to `topic`: a mirror, or a gateway on the list that reports that it leads
        a partition. May be asked in any thread.
        """
        return bool(topic.mirror) or any(
            topic.name in broker.leads for broker in self._brokers.all().values()
        )

    def led_here(self, topic: Topic, first: int) -> Iterator[int]:
        """The partitions of a topic that this gateway leads, or will on the next request: from `first` on,
        then those before it.
        """
        indexes = (*range(first, topic.partition_count), *range(first))
        return (partition for partition in indexes if self.leader_id(topic, partition) == self._brokers.id)

    async def find_leader(self, topic: Topic, partition: int) -> BrokerRecord | None:
        """The gateway to which a request for a partition belongs, as far as is known here; None is this one.

        Raises UnknownPartition, TopicDeleted, StoreUnavailable, Damaged.
        """
        await self._hand_over_ended(topic, partition)
        if self._writer.leads(topic, partition) or not self._brokers.id:
            return None
        if not topic.is_open(partition):
            await self._in_thread(lambda: topic.partition(partition))
        topic.partition(partition).check_live()
        claimed = _claimed_by(topic, partition)
        leader = await self._other_broker(claimed)
        if leader is None and claimed == self._brokers.id:
            return None
        if leader is None or self._is_gone(leader.id):
            # All living gateways agree on the one that claims it.
            leader = self._brokers.other(self._preferred_leader(topic, partition))
        return leader

    def known_leaders(self, topic: Topic, partitions: Iterable[int]) -> dict[int, BrokerRecord | None]:
        """The gateway to which a request for each of `partitions` belongs: None where this one leads, another
        one that lives. Those that it takes a wait to know are left out.
        """
        found: dict[int, BrokerRecord | None] = {}
        preferred: Sequence[int] | None = None
        for partition in partitions:
            if self._writer.leads(topic, partition):
                found[partition] = None
            elif (topic.topic_id, partition) not in self._moving and topic.is_open(partition):
                claimed = _claimed_by(topic, partition)
                leader = self._brokers.other(claimed)
                if leader is None and claimed != self._brokers.id:  # nobody's, or of one that has ended
                    preferred = preferred or self._preferred_leaders(topic)
                    leader = self._brokers.other(preferred[partition])
                if leader is not None and not self._brokers.is_silent(leader.id):
                    found[partition] = leader
        return found

    async def should_lead(self, topic: Topic, partition: int) -> bool:
        """Whether this gateway leads a partition, or is the one to claim it because nobody leads.

        Raises as `find_leader`.
        """
        leader = await self.find_leader(topic, partition)
        if leader is not None and await self._peers.is_lost(leader):
            self.note_unreachable(leader.id)
            leader = await self.find_leader(topic, partition)
        return leader is None

    def note_unreachable(self, broker: int) -> None:
        """`broker` could not be reached: while it is silent too, others lead in its place."""
        self._unreached.add(broker)

    async def _is_reachable(self, broker: BrokerRecord) -> bool:
        """Whether `broker` can be reached now."""
        answers = await self._peers.ping(broker)
        (self._unreached.discard if answers else self._unreached.add)(broker.id)
        return answers

    async def refresh_leader(self, topic: Topic, partition: int) -> int:
        """Read from its table which broker leads a partition now; 0 is none.

        Raises what `PartitionReader.refresh` raises.
        """
        await self._in_thread(lambda: topic.partition(partition).refresh(wait=True))
        return _claimed_by(topic, partition)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer.claiming, work)

    async def become_leader(self, topic: Topic, partition: int, forwarded: bool = False) -> Accumulator:
        """The accumulator of a partition, which is claimed now if nobody leads it.

        `forwarded`: another gateway asks, which has tried those that it knew of. Raises NotLeader when
        somebody else leads it, and what `Writer.accumulator_for` raises.
        """
        await self._hand_over_ended(topic, partition)
        if not self._writer.leads(topic, partition) and self._brokers.id:
            self._check_staying()
            leader = await self._other_broker(await self.refresh_leader(topic, partition))
            if leader is not None:
                silent = self._brokers.is_silent(leader.id) if forwarded else self._is_gone(leader.id)
                if not silent or await self._is_reachable(leader):
                    raise _not_leader(topic, partition)
                await asyncio.sleep(CLAIM_PAUSE_S * self._clock.random())
                if await self.refresh_leader(topic, partition) != leader.id:
                    raise _not_leader(topic, partition)
        return await self._writer.accumulator_for(topic, partition, self._brokers.id)

    async def _other_broker(self, broker: int) -> BrokerRecord | None:
        """The gateway `broker`, if it is on the list now and not this one."""
        if broker not in (0, self._brokers.id) and self._brokers.other(broker) is None:
            await asyncio.to_thread(self._cluster.refresh)  # it may be new
        return self._brokers.other(broker)

    async def take_over(self, topic: Topic, partition: int) -> None:
        """Lead a partition that its leader hands over. Raises NotLeader, and what `Writer.accumulator_for`
        raises.
        """
        self._check_staying()
        await self.refresh_leader(topic, partition)  # a fence may not be known here yet
        await self._writer.accumulator_for(topic, partition, self._brokers.id)

    def _check_staying(self) -> None:
        """Raise NotLeader when this gateway is about to end and there are others."""
        if self._closing and self._others():
            raise NotLeader("this gateway is stopping; repeat the request")

    def _reported_leader(self, topic: Topic, partition: int, claimed: int) -> int:
        """The other broker that leads a partition, 0 is none; `claimed` is what its table said, maybe long
        ago.

        If living brokers publish that they lead it, and `claimed` does not, one of those is right.
        """
        return _reported(self._reports(topic), partition, claimed)

    def _reports(self, topic: Topic) -> list[tuple[int, Collection[int]]]:
        """The other gateways that live, and the partitions of `topic` that each says it leads."""
        others = [broker for broker in map(self._brokers.other, self._brokers.living()) if broker is not None]
        return [(each.id, frozenset(each.leads.get(topic.name, ()))) for each in others]

    def _preferred_leader(self, topic: Topic, partition: int) -> int:
        return self._preferred_leaders(topic)[partition]

    def _preferred_leaders(self, topic: Topic) -> Sequence[int]:
        living = self._brokers.living() or (self._brokers.id,)
        return preferred_leaders(topic.topic_id, topic.partition_count, living)

    def _is_gone(self, broker: int) -> bool:
        if not self._brokers.is_silent(broker):
            self._unreached.discard(broker)
        return broker in self._unreached

    async def _hand_over_ended(self, topic: Topic, partition: int) -> None:
        """Return when no hand-over of the partition is under way."""
        moving = self._moving.get((topic.topic_id, partition))
        if moving is not None:
            await asyncio.shield(moving)

    async def _balance_and_announce(self) -> None:
        living = self._brokers.living()
        if living == self._lived and self._others():  # a gateway that has just come may not stay
            with self._failures.catch("balance"):
                await self._balance(living)
        self._lived = living
        await self._writer.forget()  # else deleted topics would be announced, and kept for ever
        leads: dict[str, list[int]] = {}
        async for topic, led in self._led():  # two, while one of the name is deleted and made again
            leads[topic.name] = sorted({*leads.get(topic.name, ()), *led})
        self._brokers.announce_led(dict(sorted(leads.items())))

    async def _led(self) -> AsyncIterator[tuple[Topic, list[int]]]:
        """The partitions of each topic that are led here; the event loop serves others in between."""
        for number, each in enumerate(self._writer.led_by_topic(), 1):
            yield each
            if number % TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _balance(self, living: tuple[int, ...]) -> None:
        moves: list[tuple[Topic, int, int]] = []
        async for topic, led in self._led():
            preferred = preferred_leaders(topic.topic_id, topic.partition_count, living)
            moves += [(topic, each, preferred[each]) for each in led if preferred[each] != self._brokers.id]
        await self._move(moves)

    async def _move(self, moves: Iterable[tuple[Topic, int, int]]) -> None:
        at_once = asyncio.Semaphore(MOVES_MAX)

        async def one(topic: Topic, partition: int, to: int) -> None:
            async with at_once:
                broker = self._brokers.other(to)
                if broker is not None and self._cluster.cached_topic(topic.name) is topic:
                    await self._hand_over(topic, partition, broker)

        await asyncio.gather(*(one(*move) for move in moves))

    async def _hand_over(self, topic: Topic, partition: int, to: BrokerRecord) -> None:
        """Commit what waits, stop leading, and have `to` take over; requests wait until then."""
        if not await self._peers.ping(to):
            return
        at = (topic.topic_id, partition)
        moving = self._moving[at] = asyncio.get_running_loop().create_future()
        self._offered.add(at)
        try:
            for act in self._leaving:
                await act(topic, partition)
            await self._writer.release(topic, partition)
            await self._peers.request_takeover(to, topic, partition)
            await self.refresh_leader(topic, partition)
        except LakelogError as error:
            _log.warning(
                "partition %d of %s was not handed over to broker %d: %s", partition, topic.name, to.id, error
            )
        finally:
            del self._moving[at]
            moving.set_result(None)


def _claimed_by(topic: Topic, partition: int) -> int:
    """The broker that has claimed an open partition, as last read; 0 is none."""
    return topic.partition(partition).snapshot.leader_broker


def _reported(reports: Sequence[tuple[int, Collection[int]]], partition: int, claimed: int) -> int:
    """`Leadership._reported_leader`, by these reports."""
    reporting = [broker for broker, led in reports if partition in led]
    return reporting[0] if reporting and claimed not in reporting else claimed


def _not_leader(topic: Topic, partition: int) -> NotLeader:
    return NotLeader(
        f"another gateway leads partition {partition} of topic {topic.name!r}; repeat the request"
    )


def _preferred_leader_of(topic: Topic, partition: int, brokers: tuple[int, ...]) -> int:
    return preferred_leaders(topic.topic_id, topic.partition_count, brokers)[partition]


@lru_cache(maxsize=4_096)
def preferred_leaders(topic_id: str, partitions: int, brokers: tuple[int, ...]) -> tuple[int, ...]:
    """The broker that should lead each partition of a topic: every broker has as many, give or take one.

    Gateways that know the same brokers come to the same result, and few partitions move when a broker comes
    or goes: rendezvous hashing (Thaler and Ravishankar 1998) with a bound on the load of each.
    """
    least, more = divmod(partitions, len(brokers))
    load = dict.fromkeys(brokers, 0)
    chosen = []
    for partition in range(partitions):
        ranked = sorted(
            brokers, key=lambda b: mmh3.hash(f"{topic_id}/{partition}/{b}", signed=False), reverse=True
        )
        taken = next(b for b in ranked if load[b] < least or (load[b] == least and more))
        more -= load[taken] == least
        load[taken] += 1
        chosen.append(taken)
    return tuple(chosen)
