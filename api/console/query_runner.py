"""The queries of one gateway: each in a process, a few at a time, and ended when nobody waits or time is up.

A process is kept for the next query. One that is ended in the middle of a query is replaced, and a query that
takes long has another process started for the next one. So a query never waits for the end of another.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal

from api.console.query_process import Frame, QueryProcess
from api.gateway import Gateway
from ingest.registry_settings import registry_accesses
from log_tables.errors import InvalidArgument, QuotaReached, Retriable
from log_tables.limits import MIB
from log_tables.sql.query_request import QueryRequest, RootRequest

QUERIES_MAX = 2
"""Queries that run at a time."""

WAITING_MAX = 16
"""Queries that wait for one of them to end."""

WAIT_S = 5.0
"""How long one waits."""

START_S = 10.0
"""How long a process may take to open the root; it takes about a second."""

LONG_S = 0.5
"""A query that takes longer has another process started for the next one."""

IDLE_S = 300.0
"""How long a process is kept that nobody asks anything."""

KEPT_BYTES = 384 * MIB
"""A process that has more memory after a query is not kept: allocators give back little."""

_CANCELLED = "the query was cancelled; send it again"

Gone = Callable[[], Awaitable[object]]
"""Returns when nobody waits for the answer any more."""


class QueryRunner:
    """It starts nothing until it is asked. Used on the event loop."""

    def __init__(self, here: Gateway) -> None:
        self._here = here
        settings, store = here.settings, here.cluster.store
        registries = registry_accesses(settings.schema_registries)
        self._root = RootRequest(store.url, dict(store.options), int(settings.sql_memory), registries)
        self._timeout_s = settings.sql_timeout_ms / 1000
        self._slots, self._waiting = asyncio.Semaphore(QUERIES_MAX), 0
        self._spare: asyncio.Future[QueryProcess] | None = None
        self._running: set[QueryProcess] = set()
        self._idle_end: asyncio.TimerHandle | None = None

    def warm(self) -> None:
        """Have a process ready for the next query."""
        if self._spare is None and not self._here.stopping.is_set():
            spare = asyncio.ensure_future(_started(self._root))
            spare.add_done_callback(self._forget_failed)
            self._keep(spare)

    async def frames(self, request: QueryRequest, gone: Gone) -> AsyncGenerator[Frame]:
        """The answer to a query; DONE is the last frame.

        Raises QuotaReached when too many run, InvalidArgument for one that is wrong or takes too long,
        Retriable when its process is ended, and what a query raises.
        """
        left = asyncio.ensure_future(gone())
        try:
            entry = await self._enter(left)
            try:
                process = await self._taken(left)
                self._running.add(process)
                watch = asyncio.create_task(self._watch(process, left, entry))
                try:
                    await process.ask(request)
                    while not process.is_ready:
                        yield await process.read()
                finally:
                    watch.cancel()
                    self._running.discard(process)
                    self._give_back(process)
            finally:
                entry.end()
        finally:
            left.cancel()

    async def close(self) -> None:
        """End all processes."""
        spare, self._spare = self._spare, None
        if self._idle_end is not None:
            self._idle_end.cancel()
        ending = [*self._running]
        if spare is not None:
            spare.cancel()
            if spare.done() and not spare.cancelled() and spare.exception() is None:
                ending.append(spare.result())
        for process in ending:
            process.end()
        for process in ending:
            await process.wait()

    async def _enter(self, left: "asyncio.Future[object]") -> "_QueryEntry":
        """Wait for a turn. Raises QuotaReached without one, Retriable when the client has `left`."""
        if self._waiting >= WAITING_MAX:
            raise QuotaReached(
                f"{self._waiting} queries wait already; repeat this one later", retry_after_s=WAIT_S
            )
        self._waiting += 1
        turn = asyncio.ensure_future(self._slots.acquire())
        try:
            await asyncio.wait((turn, left), timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
            if turn.done() and not left.done():
                return _QueryEntry(self._slots)
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            self._waiting -= 1
        self._give_up(turn)
        if left.done():
            raise Retriable(_CANCELLED)
        raise QuotaReached(
            f"{QUERIES_MAX} queries have run here for {WAIT_S:g} s; repeat this one later",
            retry_after_s=WAIT_S,
        )

    def _give_up(self, turn: "asyncio.Future[Literal[True]]") -> None:
        """Leave a turn to the next query, whether it has come or not."""
        if turn.done() and not turn.cancelled():
            self._slots.release()
        turn.cancel()

    async def _taken(self, left: "asyncio.Future[object]") -> QueryProcess:
        """A process that is ready. Raises what starting it raises, Retriable when the client has `left`."""
        while True:
            self.warm()
            spare = self._spare
            if spare is None:
                raise Retriable("the gateway is stopping; send the query to another one")
            await asyncio.wait((spare, left), return_when=asyncio.FIRST_COMPLETED)
            if not spare.done():
                raise Retriable(_CANCELLED)
            process = await asyncio.shield(spare)
            if self._spare is spare:  # else another query has taken it
                self._keep(None)
                if not process.has_ended:
                    return process

    def _forget_failed(self, spare: "asyncio.Future[QueryProcess]") -> None:
        """One that could not be started is no error of a later query."""
        if (spare.cancelled() or spare.exception() is not None) and self._spare is spare:
            self._keep(None)

    def _give_back(self, process: QueryProcess) -> None:
        fit = process.is_ready and process.memory_bytes < KEPT_BYTES
        if fit and self._spare is None and not self._here.stopping.is_set():
            ready = asyncio.get_running_loop().create_future()
            ready.set_result(process)
            self._keep(ready)
        else:
            process.end()
            self.warm()

    def _keep(self, spare: "asyncio.Future[QueryProcess] | None") -> None:
        """Let `spare` be the process for the next query, for some time."""
        self._spare = spare
        if self._idle_end is not None:
            self._idle_end.cancel()
        if spare is not None:
            self._idle_end = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle, spare)

    def _end_idle(self, spare: "asyncio.Future[QueryProcess]") -> None:
        if self._spare is spare and spare.done():
            self._spare = None
            spare.result().end()

    async def _watch(
        self, process: QueryProcess, left: "asyncio.Future[object]", entry: "_QueryEntry"
    ) -> None:
        """End the process when nobody waits for its answer, the gateway stops, or time is up.

        Its entry ends then, too: a client that takes nothing of its answer holds up no other query.
        """
        stopping = asyncio.ensure_future(self._here.stopping.wait())
        try:
            done, _ = await asyncio.wait(
                (left, stopping), timeout=min(LONG_S, self._timeout_s), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                self.warm()
                rest_s = max(0.0, self._timeout_s - LONG_S)
                await asyncio.wait((left, stopping), timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                process.end(Retriable("the gateway is stopping; send the query to another one"))
            elif left.done():
                process.end(Retriable(_CANCELLED))
            else:
                process.end(
                    InvalidArgument(
                        f"the query took longer than {self._timeout_s:g} s (sql_timeout_ms); let it read "
                        "less, by a filter over partition, offset or timestamp"
                    )
                )
            entry.end()
        finally:
            stopping.cancel()


async def _started(root: RootRequest) -> QueryProcess:
    """A new process. Raises Retriable if it takes too long to open the root."""
    try:
        return await asyncio.wait_for(QueryProcess.start(root), START_S)
    except TimeoutError:
        raise Retriable(
            f"no process for queries could open the root within {START_S:g} s: the store is slow, or away; "
            "repeat the query later"
        ) from None


class _QueryEntry:
    """The entry of one query among those that run at a time."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots, self._ended = slots, False

    def end(self) -> None:
        """Let another query run; only once."""
        if not self._ended:
            self._ended = True
            self._slots.release()
