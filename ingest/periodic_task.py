"""Work that a gateway repeats in the background, and its failures."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context

from log_tables.errors import LakelogError

_log = logging.getLogger(__name__)


class FailureLog:
    """Logs a failure when it begins and when it is over, and counts each one. Thread-safe for different work.

    A store that is away for minutes costs two lines, not one for each attempt.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None) -> None:
        """`count` is called with the name of the work for each failure."""
        self._count = count
        self._failing: dict[str, type[Exception]] = {}

    @property
    def failing(self) -> Mapping[str, type[Exception]]:
        """The work that failed when it was last tried, and how."""
        return dict(self._failing)

    @contextmanager
    def catch(self, work: str, part: str = "") -> Iterator[None]:
        """Run one attempt at `work`, or at a `part` of it. An error ends the attempt and goes no further."""
        name = _name(work, part)
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- logged and counted; the next attempt may succeed
            if self._failing.get(name) is not type(error):
                # An error of ours says all in its message; any other is a bug, whose place is of interest.
                bug = None if isinstance(error, LakelogError) else error
                _log.error("duty %s failed; it is tried again: %s", name, error, exc_info=bug)
            self._failing[name] = type(error)
            self._count(work)
        else:
            if self._failing.pop(name, None) is not None:
                _log.warning("duty %s works again", name)

    def forget(self, work: str, part: str = "") -> None:
        """Nobody tries this any more: it fails no longer, whatever the last attempt came to."""
        self._failing.pop(_name(work, part), None)


def _name(work: str, part: str) -> str:
    return f"{work} of {part}" if part else work


class PeriodicTask:
    """Awaits `act` again and again, one call at a time: at once, then `interval_s` after the last call ended.

    A call that fails is followed by the next one as any other: the interval is the pause.
    """

    def __init__(
        self, name: str, interval_s: float, act: Callable[[], Awaitable[None]], failures: FailureLog
    ) -> None:
        """`failures` receives the errors of `act`, as failures of `name`."""
        self._name, self._interval_s, self._act, self._failures = name, interval_s, act, failures
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; nothing if it has begun already."""
        if self._task is None:
            # For no request, even if one has asked for it.
            self._task = asyncio.create_task(self._run(), name=f"duty-{self._name}", context=Context())

    def stop(self) -> None:
        """Make this call of `act` the last one: it goes on, and may be the caller."""
        self._stopping.set()

    async def close(self) -> None:
        """End it: a call of `act` that is under way is cancelled, and has ended on return."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with self._failures.catch(self._name):
                await self._act()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._stopping.wait()
