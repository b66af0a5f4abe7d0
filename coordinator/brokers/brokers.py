"""The gateways on this root, and which of them live.

Each gateway is a broker with a number of its own, in the metadata log. Its sign of life is an object in the
store that it overwrites again and again: a gateway that cannot be reached over the network can still be seen
there, and no clock is compared with another's. Safety does not rest on any of this, but on the claims
(docs/FORMAT.md).

A copy of a root names gateways that are not on it. So a gateway answers only those others that are on its own
list and give signs of life in its own root.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, TypeVarTuple, Unpack

from msgspec.structs import replace

from coordinator.failure_log import FailureLog
from coordinator.periodic_task import PeriodicTask
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import BrokerReplaced, LakelogError, ObjectMissing
from log_tables.layout import broker_path

BROKER_THREADS = 2
"""One for signs of life, and one for the metadata log, which may take longer."""

BEATS_PER_TIMEOUT = 4
"""Signs of life, and looks for those of others, in `leader_timeout_ms`."""

FORGOTTEN_S = 60 * 60
"""A gateway that was silent for so long is removed from the list."""

LOOK_PAUSE_S = 0.1
"""The pause between two looks at the list and the signs of life for gateways that are not known."""

Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seen:
    """The newest sign of life of a broker, and when it was first seen here.

    It `lives` when the sign has followed another one of the same incarnation: then it is no copy.
    """

    sign: str
    since: float
    lives: bool = False

    @property
    def incarnation(self) -> str:
        return self.sign.partition(" ")[0]

    def followed_by(self, sign: str, now: float) -> "_Seen":
        found = _Seen(sign, now)
        found.lives = found.incarnation == self.incarnation != ""
        return found


class Brokers:
    """The gateways of a cluster, as one of them sees them. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        clock: Clock,
        failures: FailureLog,
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        """`replaced` is called when another gateway has registered at the same URL."""
        self._cluster, self._clock, self._url, self._replaced = cluster, clock, settings.peer_url, replaced
        self._timeout_s = settings.leader_timeout_ms / 1000
        self._record: BrokerRecord | None = None
        self._published: BrokerRecord | None = None
        self._seen: dict[int, _Seen] = {}
        # This gateway has looked again and again since the first of these times, and last at the second.
        self._awake = self._looked = clock.monotonic()
        self._beats = 0
        self._shown = ""  # the incarnation that has given a sign of life
        self._next_look: asyncio.Task[None] | None = None
        self._last_look = -LOOK_PAUSE_S
        # Apart, because a long wait for the metadata log must not look like death.
        interval_s = self._timeout_s / BEATS_PER_TIMEOUT
        self._heartbeat = PeriodicTask("heartbeat", interval_s, self._watch, failures)
        self._registration = PeriodicTask("registration", interval_s, self._stay_listed, failures)
        # Of its own: signs of life wait for nothing that requests have in a thread.
        self._threads = ThreadPoolExecutor(BROKER_THREADS, thread_name_prefix="broker")

    @property
    def id(self) -> int:
        """The number of this gateway; 0 before `start`."""
        return 0 if self._record is None else self._record.id

    @property
    def target(self) -> str:
        """The name by which other gateways mean this very process; empty before `start`."""
        return "" if self._record is None else self.target_of(self._record)

    def target_of(self, record: BrokerRecord) -> str:
        """Another gateway's target: the cluster, and an incarnation that only readers of the root know."""
        return f"{self._cluster.cluster_id}.{record.incarnation}"

    def asker(self, target: str) -> str:
        """The name of this gateway in requests to the one that `target` means; empty before `start`."""
        return "" if self._record is None else asker_of(self._record, target)

    async def admits(self, asker: str) -> bool:
        """Whether `asker` names another gateway of this root, which gave signs of life here.

        Memory answers first. If it does not know, all callers share one look at the root.
        """
        if self._is_here(asker):
            return True
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_soon())
        await asyncio.shield(self._next_look)
        return self._is_here(asker)

    def _is_here(self, asker: str) -> bool:
        number, _, seal = asker.partition(".")
        numbered = number.isascii() and number.isdecimal() and len(number) < 10
        record = self.other(int(number)) if numbered else None
        if record is None or not hmac.compare_digest(
            seal.encode(), _seal(self.target, record.incarnation).encode()
        ):
            return False
        seen = self._seen.get(record.id)
        if seen is None or seen.incarnation != record.incarnation:
            return False
        return seen.lives or not self.is_silent(record.id)  # a slow store alone separates no gateways

    async def _look_soon(self) -> None:
        await asyncio.sleep(max(0, self._last_look + LOOK_PAUSE_S - self._clock.monotonic()))
        self._next_look = None  # callers from now on need a look that begins later
        self._last_look = self._clock.monotonic()
        try:
            await asyncio.to_thread(self._cluster.refresh, wait=True)
            await self._look()
        except LakelogError as error:
            _log.warning("the gateways on this root cannot be looked up: %s", error)

    @property
    def leaving(self) -> bool:
        """Whether this gateway is about to end."""
        return self._record is not None and self._record.leaving

    def all(self) -> Mapping[int, BrokerRecord]:
        """Every gateway that has registered and not left, by number; silent ones too."""
        found = self._cluster.metadata_log.brokers
        return found if self._record is None else {**found, self._record.id: self._record}

    def other(self, broker: int) -> BrokerRecord | None:
        """The gateway `broker`, if it is known and not this one."""
        return None if broker == self.id else self._cluster.metadata_log.brokers.get(broker)

    def is_silent(self, broker: int) -> bool:
        """Whether `broker` gave no sign of life for leader_timeout_ms, while this gateway looked."""
        seen, now = self._seen.get(broker), self._clock.monotonic()
        if seen is None or now - self._looked >= self._timeout_s:
            return False
        return now - max(seen.since, self._awake) >= self._timeout_s

    def is_over(self, record: BrokerRecord) -> bool:
        """Whether the gateway of `record` is off the list, or started again: it no longer answers."""
        listed = self._cluster.metadata_log.brokers.get(record.id)
        return listed is None or listed.incarnation != record.incarnation

    def living(self) -> tuple[int, ...]:
        """This gateway and the others that are not silent, in order, without those that are leaving."""
        staying = (broker for broker, record in self.all().items() if not record.leaving)
        return tuple(sorted(b for b in staying if b == self.id or not self.is_silent(b)))

    async def start(self) -> None:
        """Register, now or when the store lets it, and begin to give signs of life."""
        try:
            await self._register()
            await self._watch()
        except LakelogError as error:  # a full disk, say: the logs can still be read
            _log.warning("this gateway is not registered yet, and tries again: %s", error)
        self._heartbeat.start()
        self._registration.start()

    async def leave(self) -> None:
        """Tell the others that this gateway is about to end, so that they hand nothing over to it.

        Raises StoreUnavailable, NotLeader, BrokerReplaced, Damaged.
        """
        if self._record is not None:
            self._record = replace(self._record, leaving=True)
            await self._publish()

    async def _in_thread(self, work: Callable[[Unpack[Given]], Answer], *given: *Given) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def close(self) -> None:
        """Leave in order: nobody leads then what this gateway still led."""
        await self._heartbeat.close()
        await self._registration.close()
        record, self._record = self._record, None
        if record is not None:
            try:
                await self._in_thread(self._strike_off, record)
            except LakelogError as error:
                _log.warning("the other gateways do not hear that broker %d ends: %s", record.id, error)

    def announce_led(self, leads: Mapping[str, list[int]]) -> None:
        """Publish, with the next sign of life, that this gateway leads these partitions."""
        if self._record is not None and self._record.leads != leads:
            self._record = replace(self._record, leads=dict(leads))

    async def _watch(self) -> None:
        """Give a sign of life, and look for those of the other gateways."""
        if self._record is not None and (self._others() or self._shown != self._record.incarnation):
            # Begun on the event loop, not in a thread alone: a gateway whose loop hangs must look dead.
            self._beats += 1
            await self._in_thread(self._beat, self._record)
        await self._look()

    def _others(self) -> list[int]:
        return [broker for broker in self._cluster.metadata_log.brokers if broker != self.id]

    async def _look(self) -> None:
        """Look for the signs of life of the others."""
        signs = await self._in_thread(self._signs, self._others())
        now = self._clock.monotonic()
        if now - self._looked >= self._timeout_s:  # this process stood still
            self._awake = now
        self._looked = now
        for broker, sign in signs.items():
            seen = self._seen.get(broker)
            if seen is None:
                self._seen[broker] = _Seen(sign, now)
            elif seen.sign != sign:
                self._seen[broker] = seen.followed_by(sign, now)
        for broker in self._seen.keys() - signs.keys():
            del self._seen[broker]

    def _beat(self, record: BrokerRecord) -> None:
        sign = f"{record.incarnation} {self._beats}"
        self._cluster.store.put(broker_path(record.id), sign.encode())
        self._shown = record.incarnation

    def _signs(self, others: list[int]) -> dict[int, str]:
        return {broker: self._sign(broker) for broker in others}

    def _sign(self, broker: int) -> str:
        try:
            return self._cluster.store.get(broker_path(broker)).decode(errors="replace")
        except ObjectMissing:
            return ""

    async def _register(self) -> None:
        self._record = await self._in_thread(self._cluster.metadata_log.register_broker, self._url)
        self._published = self._record

    def _strike_off(self, record: BrokerRecord) -> None:
        """Take a gateway off the list, with its sign of life."""
        self._cluster.metadata_log.remove_broker(record)
        self._cluster.store.delete(broker_path(record.id))

    def _is_forgotten(self, record: BrokerRecord) -> bool:
        """Whether others have removed this gateway from the list: it was silent for very long."""
        listed = self._cluster.metadata_log.brokers.get(record.id)
        return listed is None or (listed.incarnation != record.incarnation and listed.url != record.url)

    def _is_replaced(self, record: BrokerRecord) -> bool:
        """Whether another gateway is on the list in this one's place."""
        listed = self._cluster.metadata_log.brokers.get(record.id)
        return listed is not None and listed.incarnation != record.incarnation

    async def _stay_listed(self) -> None:
        """`_publish`, until another gateway has registered at this URL."""
        try:
            await self._publish()
        except BrokerReplaced as error:
            _log.error("%s", error)
            self._registration.stop()
            self._replaced()

    async def _publish(self) -> None:
        """Publish what this gateway leads, if that has changed; remove gateways that died long ago."""
        if self._record is None or self._is_forgotten(self._record):
            await self._register()
        record = self._record
        if record is not None and (record != self._published or self._is_replaced(record)):
            await self._in_thread(self._cluster.metadata_log.publish_broker, record)
            self._published = record
        now = self._clock.monotonic()
        for broker, seen in [*self._seen.items()]:
            record = self.other(broker)
            if record is not None and self.is_silent(broker) and now - seen.since >= FORGOTTEN_S:
                await self._in_thread(self._strike_off, record)


def asker_of(record: BrokerRecord, target: str) -> str:
    """The name of the gateway of `record` in requests to the one that `target` means.

    It proves that the sender knows its own incarnation, and does not reveal it.
    """
    return f"{record.id}.{_seal(target, record.incarnation)}"


@lru_cache(maxsize=1_024)
def _seal(target: str, incarnation: str) -> str:
    """Proof towards `target` that the sender knows `incarnation`; it is good for nothing else."""
    return hashlib.blake2b(target.encode(), key=incarnation.encode(), digest_size=16).hexdigest()
