"""Faults of a gateway under test, at the door of HTTP: requests that are refused, late, or not answered."""

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from log_tables.errors import error_named

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class FaultKind(StrEnum):
    """The ways in which a request fails."""

    REFUSE = "refuse"
    """Nothing is done, and the answer is an error."""

    DELAY = "delay"
    """It is looked at later."""

    LOSE_ANSWER = "lose_answer"
    """It is done, and its connection is closed without an answer."""


@dataclass(frozen=True)
class Fault:
    """A fault of the next `times` requests, None: of all, whose method and path fit."""

    kind: FaultKind
    path: str
    method: str
    times: int | None
    seconds: float = 0
    error: str = ""

    def fits(self, scope: Scope) -> bool:
        """Whether it is due for a request: `path` is a part of its path, `method` its method or empty."""
        due = self.times is None or self.times > 0
        return due and self.path in scope["path"] and self.method in ("", scope["method"])

    def plain(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


class FaultyApp:
    """`inner` with faults. The first that fits a request counts it."""

    def __init__(self, inner: App) -> None:
        self._inner = inner
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        """Have this one, too. From any thread."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Have none from now on. From any thread."""
        with self._lock:
            self._faults.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._next(scope) if scope["type"] == "http" else None
        if fault is None:
            await self._inner(scope, receive, send)
        elif fault.kind is FaultKind.REFUSE:
            from api.errors import error_response  # the test's own process needs no gateway

            told = "the gateway refused, as its test wants it; repeat the request if its error says so"
            await error_response(error_named(fault.error, told))(scope, receive, send)
        elif fault.kind is FaultKind.LOSE_ANSWER:
            await self._lose(scope, receive)
        else:
            import asyncio  # nor does it need an event loop

            await asyncio.sleep(fault.seconds)
            await self._inner(scope, receive, send)

    def _next(self, scope: Scope) -> Fault | None:
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.fits(scope):
                    if fault.times is not None:
                        self._faults[index] = replace(fault, times=fault.times - 1)
                    return fault
        return None

    async def _lose(self, scope: Scope, receive: Receive) -> None:
        """Do what is asked, then close the connection, which ASGI has no message for."""

        async def swallow(_message: MutableMapping[str, Any]) -> None:
            pass

        await self._inner(scope, receive, swallow)
        receive.__self__.transport.abort()  # type: ignore[attr-defined]  # the method of uvicorn's request
        while (await receive())["type"] != "http.disconnect":
            pass
