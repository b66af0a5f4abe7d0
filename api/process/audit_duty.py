"""Events of the audit go to the topic `__audit`, in batches, behind the requests that they are about.

No request waits for it. An event that cannot be appended waits for the next attempt, and one for which there
is no room is counted. A gateway that stops appends what its leader does not take past it, as commands do.
"""

import asyncio
import logging
from contextlib import suppress

from msgspec.structs import replace

from api.gateway import Gateway
from coordinator.access.audit import Audit
from ingest.periodic_task import PeriodicTask
from ingest.writer import Acks
from log_tables.cluster.admin.audit_log import append_events, append_request, keep_audit_topic
from log_tables.cluster.audit_record import AuditRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, TopicDeleted

INTERVAL_S = 1.0
"""How often events are appended: a crash loses so many of them, and a commit has as many."""

LAST_ATTEMPT_S = 5.0
"""How long a gateway that stops tries to append what it has: by the leader, and then past it."""

_log = logging.getLogger(__name__)


class AuditDuty:
    """Writes the audit of one gateway, on its event loop. It does nothing where nothing is audited."""

    def __init__(self, gateway: Gateway, last_attempt_s: float = LAST_ATTEMPT_S) -> None:
        self._gateway, self._clock, self._last_attempt_s = gateway, gateway.clock, last_attempt_s
        self._audit = gateway.access.audit or Audit(gateway.clock)
        self._topic: Topic | None = None
        self._rate = gateway.settings.audit_records_per_s_max
        self._taken_s = gateway.clock.monotonic() - INTERVAL_S
        self._failures = gateway.failures
        self._task = PeriodicTask("audit", INTERVAL_S, self._run, self._failures)

    def start(self) -> None:
        if self._gateway.access.audit is not None:
            self._task.start()

    async def close(self) -> None:
        """Append all that waits, and the counts of this minute: by the leader of the log, and where that
        fails, past it. A loss is logged, with the number of events.
        """
        if self._gateway.access.audit is None:
            return
        await self._task.close()
        self._audit.close()
        is_failing = "audit" in self._failures.failing
        with self._failures.catch("audit"):
            if left := self._audit.take(self._audit.waiting + 1):
                await self._append_last(left, by_leader=not is_failing)

    async def _run(self) -> None:
        """Append what waits, as much as the rate allows; what fails waits on."""
        await self._keep_topic()
        await self._append(self._allowance())

    async def _append_last(self, left: list[AuditRecord], by_leader: bool) -> None:
        """Append what was taken when the gateway stops, past the leader unless it goes `by_leader`."""
        if by_leader:
            with suppress(LakelogError, TimeoutError):
                async with asyncio.timeout(self._last_attempt_s):
                    await self._append_all(left)
                return
        try:
            async with asyncio.timeout(self._last_attempt_s):
                await asyncio.to_thread(self._append_past_leader, left)
        except (LakelogError, TimeoutError) as error:
            _log.error(
                "audit events that are in no record: %d; this gateway stops, and cannot append them: %s",
                sum(each.count for each in left),
                str(error) or f"no answer within {self._last_attempt_s} s",
            )

    def _append_past_leader(self, left: list[AuditRecord]) -> None:
        """Append by a claim of this process, which the leader takes back with its next append; blocking."""
        self._make_topic()
        append_events(self._gateway.cluster, self._named(left))

    def _allowance(self) -> int:
        """The events that may be appended now, by the time since the last ones: a second's worth at most."""
        now = self._clock.monotonic()
        most = int(min(1.0, now - self._taken_s) * self._rate)
        if most:
            self._taken_s = now
        return most

    async def _append(self, most: int) -> None:
        taken = self._audit.take(most)
        if not taken:
            return
        try:
            await self._append_all(taken)
        except BaseException:
            self._audit.put_back(taken)
            raise

    async def _append_all(self, records: list[AuditRecord]) -> None:
        here, topic = self._gateway, await self._keep_topic()
        request = append_request(self._named(records), self._clock.now_us())
        with here.buffer.room(topic.name) as room:
            room.settle(request.size_bytes)
            [outcome] = await here.router.append(topic, [(0, request)], Acks.ALL, room)
        if isinstance(outcome, LakelogError):
            if isinstance(outcome, TopicDeleted):
                self._topic = None
            raise outcome
        for record in records:
            here.metrics.audited(record.kind)

    def _named(self, records: list[AuditRecord]) -> list[AuditRecord]:
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
        }
        return keep_audit_topic(self._gateway.cluster, configs)
