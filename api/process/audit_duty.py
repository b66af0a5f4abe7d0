"""Events of the audit go to the topic `__audit`, in batches, behind the requests that they are about.

No request waits for it. A batch that cannot be appended waits for the next attempt, and an event for which
there is no room is counted. What waits for long, or when the gateway stops, is spilled to the root, and
appended by whoever finds it (log_tables/cluster/admin/audit_spill.py). Each batch has a stamp, by which it is
in the log once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from api.gateway import Gateway
from coordinator.access.audit import Audit
from ingest.periodic_task import PeriodicTask
from ingest.writer import Acks
from log_tables.cluster.admin.audit_log import AuditBatch, append_batch, first_batch, keep_audit_topic
from log_tables.cluster.admin.audit_spill import SPILLED_MAX_BYTES, read_batch, spill, spilled
from log_tables.cluster.audit_record import AuditRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, SequenceGap, TopicDeleted
from log_tables.layout import AUDIT_SPILLS
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.partition.partition import ProducerStamp

INTERVAL_S = 1.0
"""How often events are appended: a crash loses so many of them, and a commit has as many."""

LAST_ATTEMPT_S = 5.0
"""How long a gateway that stops tries to append what it has by the leader, then past it, then to spill it."""

SPILL_AFTER_S = 30.0
"""How long nothing can be appended until what waits is spilled, and how often is looked for what is."""

SPILL_WAITING = 5_000
"""Events that wait, of which as many are spilled sooner."""

BATCH_EVENTS = 1_000
"""Events of a batch that is spilled, or the last of a gateway."""

PRODUCERS_KNOWN_MS = 90 * 24 * 60 * 60 * 1000
"""How long the log knows which batches it has: so long what is spilled may wait, and be appended once."""

_log = logging.getLogger(__name__)


class AuditDuty:
    """Writes the audit of one gateway, on its event loop. It does nothing where nothing is audited."""

    def __init__(
        self, gateway: Gateway, last_attempt_s: float = LAST_ATTEMPT_S, spill_after_s: float = SPILL_AFTER_S
    ) -> None:
        self._gateway, self._clock = gateway, gateway.clock
        self._last_attempt_s, self._spill_after_s = last_attempt_s, spill_after_s
        self._audit = gateway.access.audit or Audit(gateway.clock)
        self._topic: Topic | None = None
        self._rate = gateway.settings.audit_records_per_s_max
        self._taken_s = gateway.clock.monotonic() - INTERVAL_S
        self._failing_s: float | None = None
        self._look_s = 0.0
        self._left: list[AuditBatch] = []  # taken, and not known to be in the log
        self._spilled = 0  # events, in the last attempt
        self._next: ProducerStamp | None = None
        self._failures = gateway.failures
        self._task = PeriodicTask("audit", INTERVAL_S, self._run, self._failures)

    def start(self) -> None:
        if self._gateway.access.audit is not None:
            self._task.start()

    async def close(self) -> None:
        """Append all that waits, and the counts of this minute, by the leader of the log; `finish` has the
        rest.
        """
        if self._gateway.access.audit is None:
            return
        await self._task.close()
        self._audit.close()
        self._take_all()
        if "audit" in self._failures.failing:
            return
        with self._failures.catch("audit"), suppress(LakelogError, TimeoutError):  # `finish` says more
            async with asyncio.timeout(self._last_attempt_s):
                while self._left:
                    await self._append_first()

    async def finish(self) -> None:
        """Append what is left, and what was written since, past the leader; spill it where that fails. A loss
        is logged, with the number of events.
        """
        if self._gateway.access.audit is None:
            return
        self._audit.close()
        self._take_all()
        count, self._spilled = sum(batch.count for batch in self._left), 0
        if not (why := await self._last_attempt(self._append_past_leader)):
            return
        if not (worse := await self._last_attempt(self._spill)):
            _log.warning("audit events that wait in %s/ for a gateway: %d; %s", AUDIT_SPILLS, count, why)
            return
        _log.error(
            "audit events that are in no record: %d; this gateway stops, and can neither append them nor put "
            "them into %s/: %s",
            count - self._spilled,
            AUDIT_SPILLS,
            worse,
        )

    async def _last_attempt(self, act: Callable[[Sequence[AuditBatch]], None]) -> str:
        """Have `act` take what is left, in time; returns why it has not, if so. It may take it later, too,
        which the stamps allow.
        """
        if not self._left:
            return ""
        try:
            async with asyncio.timeout(self._last_attempt_s):
                await asyncio.to_thread(act, [*self._left])
        except (LakelogError, OSError, TimeoutError) as error:
            return str(error) or f"no answer within {self._last_attempt_s} s"
        self._left.clear()
        return ""

    async def _run(self) -> None:
        """Append what waits, as much as the rate allows; what fails waits on, or is spilled."""
        try:
            await self._keep_topic()
            most = self._allowance()
            if not self._left and (taken := self._audit.take(most)):
                self._left.append(self._stamped(taken))
            if self._left:
                await self._append_first()
        except Exception:
            await self._spill_when_due()
            raise
        if self._failing_s is not None:
            self._failing_s, self._look_s = None, 0.0
        await self._append_spilled()

    def _take_all(self) -> None:
        """Take all that waits, each batch as the first one of a producer: they may be spilled."""
        while taken := self._audit.take(BATCH_EVENTS):
            self._left.append(first_batch(self._clock, self._named(taken)))

    def _stamped(self, taken: Sequence[AuditRecord]) -> AuditBatch:
        """The next batch of this gateway's own producer."""
        if self._next is None:
            batch = first_batch(self._clock, self._named(taken))
        else:
            batch = AuditBatch(self._named(taken), self._next)
        stamp = batch.stamp
        self._next = ProducerStamp(stamp.id, stamp.epoch, (stamp.sequence + len(taken)) % SEQUENCE_MODULUS)
        return batch

    def _allowance(self) -> int:
        """The events that may be appended now, by the time since the last ones: a second's worth at most."""
        now = self._clock.monotonic()
        most = int(min(1.0, now - self._taken_s) * self._rate)
        if most:
            self._taken_s = now
        return most

    async def _append_first(self) -> None:
        """Append the first of what is left. It is left until it is in the log."""
        try:
            await self._append(self._left[0])
        except (
            SequenceGap
        ):  # the log has forgotten the producer, which was idle, and so has not got the batch
            self._left[0] = first_batch(self._clock, self._left[0].records)
            self._next = None
            await self._append(self._left[0])
        del self._left[0]

    async def _append(self, batch: AuditBatch) -> None:
        here, topic = self._gateway, await self._keep_topic()
        request = batch.request(self._clock.now_us())
        with here.buffer.room(topic.name) as room:
            room.settle(request.size_bytes)
            [outcome] = await here.router.append(topic, [(0, request)], Acks.ALL, room)
        if isinstance(outcome, LakelogError):
            if isinstance(outcome, TopicDeleted):
                self._topic = None
            raise outcome
        for record in () if outcome.duplicate else batch.records:
            here.metrics.audited(record.kind)

    def _append_past_leader(self, batches: Sequence[AuditBatch]) -> None:
        """Append by a claim of this process, which the leader takes back with its next append; blocking."""
        self._make_topic()
        for batch in batches:
            append_batch(self._gateway.cluster, batch)

    # What cannot be appended.

    async def _spill_when_due(self) -> None:
        """Spill what waits, if it has waited for long, or is much."""
        now = self._clock.monotonic()
        self._failing_s = now if self._failing_s is None else self._failing_s
        is_due = now - self._failing_s >= self._spill_after_s or self._audit.waiting >= SPILL_WAITING
        if not is_due or not (self._left or self._audit.waiting):
            return
        with self._failures.catch("audit", AUDIT_SPILLS):
            held = await asyncio.to_thread(spilled, self._gateway.cluster.store)
            if sum(item.size for item in held) >= SPILLED_MAX_BYTES:
                return  # events wait in memory, and those for which there is no room are counted
            if len(self._left) <= 1:  # more would be taken again and again, while the store takes nothing
                self._take_all()
                self._next = None
            await asyncio.to_thread(self._spill, [*self._left])
            self._left.clear()
            self._failing_s = now

    def _spill(self, batches: Sequence[AuditBatch]) -> None:
        for batch in batches:
            spill(self._gateway.cluster.store, [batch])
            self._spilled += batch.count

    async def _append_spilled(self) -> None:
        """Append what gateways have spilled, this one or others, now and then."""
        now = self._clock.monotonic()
        if now < self._look_s:
            return
        self._look_s = now + self._spill_after_s
        store = self._gateway.cluster.store
        for item in await asyncio.to_thread(spilled, store):
            with self._failures.catch("audit", item.path):  # the others are appended all the same
                batch = await asyncio.to_thread(read_batch, store, item.path)
                if batch is not None:
                    await self._append(batch)
                    await asyncio.to_thread(store.delete, item.path)

    def _named(self, records: Sequence[AuditRecord]) -> list[AuditRecord]:
        """`records`, as those of this gateway."""
        url = self._gateway.settings.advertised_url
        return [replace(record, gateway=url) for record in records]

    async def _keep_topic(self) -> Topic:
        if self._topic is None:
            self._topic = await asyncio.to_thread(self._make_topic)
        return self._topic

    def _make_topic(self) -> Topic:
        settings = self._gateway.settings
        configs = {
            "retention.ms": str(settings.audit_retention_ms),
            "retention.bytes": str(settings.audit_retention_bytes),
            "producer.id.expiration.ms": str(PRODUCERS_KNOWN_MS),
        }
        return keep_audit_topic(self._gateway.cluster, configs)
