"""Transactional ids looked after: transactions that take too long, ids that nobody uses, and groups that wait
for the end of a transaction of which nobody tells them.
"""

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary

from coordinator.groups.classic.events import EndPending
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.producers.led_producers import LedProducers
from coordinator.groups.producers.producer_coordinator import ProducerCoordinator
from coordinator.groups.producers.producer_wire import AskOutcome, Ended
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from ingest.loop_share import batched
from ingest.periodic_task import FailureLog, PeriodicTask
from log_tables.clock import Clock
from log_tables.errors import NotLeader
from log_tables.layout import CONSUMER_OFFSETS

LOOK_S = 0.5
"""How often transactions that take too long are looked for."""

ASK_AFTER_S = 2.0
"""After which a group asks how a transaction has ended that nobody has told it of."""

EXPIRE_S = 60.0
"""How often ids that are not used are looked for."""

ASKS_AT_ONCE = 16
"""Groups that ask at the same time."""

DUTY, ASKING = "transactional ids", "ends of transactions"

_Waiting = dict[tuple[str, str], tuple[int, float]]
"""By group and transactional id: the number of a transaction, and since when its end is waited for."""


class ProducerDuties:
    """Used on the event loop."""

    def __init__(
        self,
        shards: Shards,
        led: LedProducers,
        coordinator: ProducerCoordinator,
        classic: ClassicCoordinator,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        self._shards, self._led, self._coordinator, self._classic = shards, led, coordinator, classic
        self._clock, self._failures = clock, failures
        self._waiting: WeakKeyDictionary[Shard, _Waiting] = WeakKeyDictionary()
        self._expired: WeakKeyDictionary[Shard, float] = WeakKeyDictionary()
        self._looking = PeriodicTask(DUTY, LOOK_S, self._look, failures)
        self._asking = PeriodicTask(ASKING, LOOK_S, self._ask, failures)

    def start(self) -> None:
        """Begin to look."""
        self._looking.start()
        self._asking.start()

    async def close(self) -> None:
        """Stop."""
        await self._looking.close()
        await self._asking.close()

    async def _look(self) -> None:
        for shard in [*self._shards]:
            if not shard.leading:
                continue
            with self._failures.catch(DUTY, f"{CONSUMER_OFFSETS}-{shard.partition}"), suppress(NotLeader):
                await self._led.abort_late(shard)
                await self._expire(shard)

    async def _ask(self) -> None:
        """Ask apart from all that has its time: others may take long to answer."""
        for shard in [*self._shards]:
            if shard.leading:
                await self._ask_for_ends(shard)

    async def _expire(self, shard: Shard) -> None:
        now = self._clock.monotonic()
        if now >= self._expired.get(shard, 0.0) + EXPIRE_S:
            self._expired[shard] = now
            await self._led.expire(shard)

    async def _ask_for_ends(self, shard: Shard) -> None:
        """Ask how transactions have ended whose end a group was not told: another gateway coordinates their
        ids by now, or nobody does.
        """
        now, known = self._clock.monotonic(), self._waiting.get(shard, {})
        waiting: _Waiting = {}
        for group_id in shard.unstable:
            for name, value in shard.group(group_id).unstable.items():
                number, since = known.get((group_id, name), (0, now))
                waiting[group_id, name] = value.number, since if number == value.number else now
        self._waiting[shard] = waiting
        due = [(*of, number) for of, (number, since) in waiting.items() if now >= since + ASK_AFTER_S]
        waiting |= {(group_id, name): (number, now) for group_id, name, number in due}
        for some in batched(due, ASKS_AT_ONCE):
            await asyncio.gather(*(self._ask_for_end(*each) for each in some))

    async def _ask_for_end(self, group_id: str, name: str, number: int) -> None:
        with self._failures.catch(ASKING), suppress(NotLeader):
            await self._end_by_answer(group_id, name, number)

    async def _end_by_answer(self, group_id: str, name: str, number: int) -> None:
        partition = await self._coordinator.partition_of(name)
        answer = await self._coordinator.ask(partition, AskOutcome(name, number))
        if isinstance(answer, Ended) and answer.committed is not None:
            event = EndPending(name, number, answer.committed, self._clock.now_ms())
            await self._classic.end_pending(group_id, event)
