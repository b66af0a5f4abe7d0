"""The option groupId: a query's progress, committed to a gateway as the offsets of a consumer group.

A thread of its own commits. The query does not fail with it, and waits for it only when it has nothing else
to do.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from lakelog.client.client import Client
from lakelog.spark.options import GatewayLocation
from log_tables.clock import Clock
from log_tables.cluster.group_log import SPARK_METADATA
from log_tables.errors import AuthenticationFailed, Conflict, LakelogError, Unreachable
from log_tables.topic_partition import TopicPartition

_REQUEST_S = 10.0
_AWAITED_S = 3.0
"""How long an idle query waits for an answer. A gateway that takes longer is not waited for again until one
of its answers has come."""

_PAUSE_S = 5.0
"""After a failure, before the next attempt."""

_ADVICE: Mapping[type[LakelogError], str] = {
    Conflict: " (use a groupId that no consumers have)",
    AuthenticationFailed: " (the options token, or user and password, say who it is)",
    Unreachable: " (the option gateway says where one is)",
}

_log = logging.getLogger(__name__)


class Progress:
    """The offsets of one group, which one thread of this object commits; another one calls its methods."""

    def __init__(self, group: str, gateway: GatewayLocation, clock: Clock) -> None:
        """Raises InvalidArgument for credentials or certificates that cannot be used."""
        self._group, self._clock = group, clock
        self._client = Client(**gateway.client_options(), timeout_s=_REQUEST_S, clock=clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-progress")
        self._sending: Future[None] | None = None
        self._wanted: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._not_before = 0.0
        self._hangs = False
        self._said = ""

    def report(self, offsets: Mapping[TopicPartition, int], last: bool) -> None:
        """Have `offsets` committed, those of the next records: they must be done up to there.

        `last` says that there is nothing to do after them. Spark may end this process then at any moment, so
        their commit is waited for, once.
        """
        fresh, self._wanted = offsets != self._wanted, offsets
        if offsets == self._committed:
            return
        idle = self._sending is None or self._sending.done()
        awaited = last and fresh and not self._hangs
        if awaited or (idle and self._clock.monotonic() >= self._not_before):
            self._sending = self._thread.submit(self._send)
            if awaited:
                self._hangs = bool(wait([self._sending], _AWAITED_S).not_done)

    def _send(self) -> None:
        wanted = self._wanted
        changed = {
            partition: offset
            for partition, offset in wanted.items()
            if self._committed.get(partition) != offset
        }
        try:
            if changed:
                self._client.set_offsets(self._group, changed, metadata=SPARK_METADATA)
        except LakelogError as error:
            self._not_before = self._clock.monotonic() + _PAUSE_S
            self._warn(error)
        else:
            self._committed, self._hangs, self._said = wanted, False, ""

    def _warn(self, error: LakelogError) -> None:
        """Once, until it is another error."""
        if error.message == self._said:
            return
        self._said = error.message
        advice = next((said for kind, said in _ADVICE.items() if isinstance(error, kind)), "")
        _log.warning(
            "group %s: the progress of the query is not committed: %s; the query continues and tries again%s",
            self._group,
            error.message,
            advice,
        )

    def close(self) -> None:
        """Let go of the thread and the connection."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._client.close()
