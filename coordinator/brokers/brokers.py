"""The gateways on this root, and which of them live.

Each gateway is a broker with a number of its own, in the metadata log. Its sign of life is an object in the
store that it overwrites again and again: a gateway that cannot be reached over the network can still be seen
there, and no clock is compared with another's. Safety does not rest on any of this, but on the claims
(docs/FORMAT.md).

A copy of a root names gateways that are not on it. So a gateway answers only those others that are on its own
list and give signs of life in its own root.
"""

import asyncio
import hmac
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple, Unpack

from msgspec.structs import replace

from coordinator.brokers.peer_secret import ADVICE, PeerSecrets, Target, seal
from ingest.pending_tasks import shared_task
from ingest.periodic_task import FailureLog, PeriodicTask
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import BrokerReplaced, InvalidConfig, LakelogError, ObjectMissing, Unreachable
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
        secrets: PeerSecrets,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called when this gateway must end: another one has registered at the same URL, or was
        listed since, with which it shares no secret.
        """
        self._listed = {each.incarnation for each in cluster.metadata_log.brokers.values()}
        self._is_refused, self._strangers = False, set[str]()
        self._secrets, self._secured = secrets, bool(settings.authentication_methods)
        self._cluster, self._clock, self._url, self._ended = cluster, clock, settings.peer_url, ended
        self._timeout_s, self._kafka = settings.leader_timeout_ms / 1000, settings.kafka_advertised_listener
        self._rack = settings.broker_rack
        self._record: BrokerRecord | None = None
        self._published: BrokerRecord | None = None
        self._seen: dict[int, _Seen] = {}
        # This gateway has looked again and again since the first of these times, and last at the second.
        self._awake = self._looked = clock.monotonic()
        self._beats, self._beat_at = 0, -math.inf  # `Clock.boottime` before the newest that the store has
        self._shown = ""  # the incarnation that has given a sign of life
        self._next_look: asyncio.Task[None] | None = None
        self._last_look = -LOOK_PAUSE_S
        # Apart, because a long wait for the metadata log must not look like death.
        interval_s = self._timeout_s / BEATS_PER_TIMEOUT
        self._heartbeat = PeriodicTask("heartbeat", interval_s, self._watch, failures)
        self._registration = PeriodicTask("registration", interval_s, self._stay_listed, failures)
        # Of its own: signs of life wait for nothing that requests have in a thread.
        self._threads = ThreadPoolExecutor(BROKER_THREADS, thread_name_prefix="broker")
        self._publishing = asyncio.Lock()

    @property
    def id(self) -> int:
        """The number of this gateway; 0 before `start`."""
        return 0 if self._record is None else self._record.id

    def find_target(self, name: str) -> Target | None:
        """This very process, if that is what other gateways mean by `name`; None before `start`."""
        return None if self._record is None else self._secrets.find(name, self._record.incarnation)

    def target_of(self, record: BrokerRecord) -> Target:
        """Another gateway's target. Raises Unreachable for one that shares no secret with this gateway, and
        for one that authenticates nobody while the cluster is secured.
        """
        target = self._secrets.target(record.incarnation, record.peer_keys)
        if target is None or not self._is_trusted(record):
            lacks = "no peer secret of this one" if target is None else "no authentication of clients"
            raise Unreachable(f"broker {record.id} has {lacks}; see its settings, and repeat the request")
        return target

    def _is_trusted(self, record: BrokerRecord) -> bool:
        return record.secured or not self._cluster.metadata_log.access.secured

    def asker(self, target: Target) -> str:
        """The name of this gateway in requests to the one that `target` means; empty before `start`."""
        return "" if self._record is None else asker_of(self._record, target)

    def admits(self, asker: str, target: Target) -> bool:
        """Whether `admitted` finds the other gateway at once."""
        return self._record is not None and self._known(asker, target) is not None

    async def admitted(self, asker: str, target: Target) -> BrokerRecord | None:
        """The other gateway of this root that `asker` names to this process, which is `target`, if it gave
        signs of life here; None for any other.

        Memory answers first. If it does not know, all callers share one look at the root.
        """
        found = self._known(asker, target)
        if found is not None:
            return found
        if self._next_look is None:
            self._next_look = shared_task(self._look_soon())
        await asyncio.shield(self._next_look)
        return self._known(asker, target)

    def _known(self, asker: str, target: Target) -> BrokerRecord | None:
        number, _, sealed = asker.partition(".")
        numbered = number.isascii() and number.isdecimal() and len(number) < 10
        record = self.other(int(number)) if numbered else None
        if record is None or not self._is_trusted(record):
            return None
        if not hmac.compare_digest(sealed.encode(), seal(target, record.incarnation).encode()):
            return None
        seen = self._seen.get(record.id)
        if seen is None or seen.incarnation != record.incarnation:
            return None
        # A slow store alone separates no gateways.
        return record if seen.lives or not self.is_silent(record.id) else None

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
    def is_refused(self) -> bool:
        """Whether this gateway never registered, because another one lives with another peer secret."""
        return self._is_refused

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

    @property
    def is_seen(self) -> bool:
        """Whether no other gateway takes this one for dead now: `is_silent` cannot hold there yet, with the
        same leader_timeout_ms. One that knows of no others gives no sign of life, and one that comes later
        than its last look at the list has not waited for long enough.
        """
        log = self._cluster.metadata_log.partition
        since = self._beat_at if self._others() else log.confirmed
        # A sign of life less, for clocks that differ.
        return self._clock.boottime() < since + self._timeout_s * (1 - 1 / BEATS_PER_TIMEOUT)

    async def start(self) -> None:
        """Register, now or when the store lets it, and begin to give signs of life."""
        try:
            await self._register()
            await self._watch()
        except InvalidConfig as error:
            self._refuse(error)
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
            began = self._clock.boottime()
            await self._in_thread(self._beat, self._record)
            self._beat_at = began
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
        self._say_strangers()

    def _say_strangers(self) -> None:
        """Say once of each gateway that lives and shares no secret with this one that it is out of reach."""
        strangers = self._secrets.strangers(self._cluster.metadata_log.brokers, self._url)
        living = {each.incarnation: each for each in strangers if self._lives(each)}
        for incarnation in living.keys() - self._strangers:
            each = living[incarnation]
            _log.error("broker %d at %s has another peer secret; %s", each.id, each.url, ADVICE)
        self._strangers = {*living}

    def _lives(self, record: BrokerRecord) -> bool:
        seen = self._seen.get(record.id)
        return seen is not None and seen.lives and seen.incarnation == record.incarnation

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
        self._record = await self._in_thread(self._register_now)
        self._published = self._record

    def _register_now(self) -> BrokerRecord:
        log = self._cluster.metadata_log
        check = self._check_new if self._published is None else lambda: None
        return log.register_broker(
            self._url,
            peer_keys=self._secrets.fingerprints,
            secured=self._secured,
            check=check,
            kafka=self._kafka,
            rack=self._rack,
        )

    def _check_new(self) -> None:
        """Raise InvalidConfig for a stranger that was not yet listed when this gateway looked for strangers:
        both have just started.
        """
        for each in self._secrets.strangers(self._cluster.metadata_log.brokers, self._url):
            if each.incarnation not in self._listed:
                raise InvalidConfig(
                    f"the gateway at {each.url} has just started with another peer secret; {ADVICE}"
                )

    def _refuse(self, error: InvalidConfig) -> None:
        _log.error("%s", error)
        self._is_refused = True
        self._registration.stop()
        self._ended()

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
        except InvalidConfig as error:
            self._refuse(error)
        except BrokerReplaced as error:
            _log.error("%s", error)
            self._registration.stop()
            self._ended()

    async def _publish(self) -> None:
        """Publish what this gateway leads, if that has changed; remove gateways that died long ago."""
        # One after the other: a record that met another writer, and is sent again, must not come after a
        # newer one, or a gateway that has said that it leaves would stay.
        async with self._publishing:
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


def asker_of(record: BrokerRecord, target: Target) -> str:
    """The name of the gateway of `record` in requests to the one that `target` means."""
    return f"{record.id}.{seal(target, record.incarnation)}"
