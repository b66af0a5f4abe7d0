"""Events of the audit go to the topic `__audit`, in batches, behind the requests that they are about.

No request waits for it. An event that cannot be appended waits for the next attempt, and one for which there
is no room is counted.
"""

import asyncio

from msgspec.structs import replace

from api.gateway import Gateway
from coordinator.access.audit import Audit
from coordinator.periodic_task import PeriodicTask
from ingest.writer import Acks
from log_tables.cluster.audit_log import append_request, keep_audit_topic
from log_tables.cluster.audit_record import AuditRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, TopicDeleted

INTERVAL_S = 1.0
"""How often events are appended: a crash loses so many of them, and a commit has as many."""

LAST_ATTEMPT_S = 5.0
"""How long a gateway that stops tries to append what it has."""


class AuditDuty:
    """Of one gateway, on its event loop. Nothing happens at a gateway that does not audit."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._clock = gateway, gateway.clock
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
        """Append all that waits, and the counts of this minute. A store that fails is logged."""
        if self._gateway.access.audit is None:
            return
        await self._task.close()
        self._audit.close()
        with self._failures.catch("audit"):
            async with asyncio.timeout(LAST_ATTEMPT_S):
                if self._topic is not None:
                    await self._append(self._audit.waiting + 1)

    async def _run(self) -> None:
        """Append what waits, as much as the rate allows; what fails waits on."""
        if self._topic is None:
            self._topic = await asyncio.to_thread(self._make_topic)
        await self._append(self._allowance())

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
        here = self._gateway
        assert self._topic is not None
        url = here.settings.advertised_url
        named = [replace(record, gateway=url) for record in records]
        request = append_request(named, self._clock.now_us())
        with here.buffer.room(self._topic.name) as room:
            room.settle(request.size_bytes)
            [outcome] = await here.router.append(self._topic, [(0, request)], Acks.ALL, room)
        if isinstance(outcome, LakelogError):
            if isinstance(outcome, TopicDeleted):
                self._topic = None
            raise outcome
        for record in records:
            here.metrics.audited(record.kind)

    def _make_topic(self) -> Topic:
        settings = self._gateway.settings
        configs = {
            "retention.ms": str(settings.audit_retention_ms),
            "retention.bytes": str(settings.audit_retention_bytes),
        }
        return keep_audit_topic(self._gateway.cluster, configs)
