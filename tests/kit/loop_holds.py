"""How long the callbacks of an event loop hold it: by the processor's time, which a busy machine leaves as it
is.
"""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from log_tables.clock import SystemClock

HELD_MAX_S = 0.02
"""What no request may hold an event loop for."""

TRIES = 3
"""An act that seems to hold the loop is repeated: one that does so always will, while a core that others slow
down for a moment will not.
"""

Hold = tuple[float, str]
"""The longest callback, in seconds, and what it was."""


class Holds:
    """The longest callback since the last `take`."""

    def __init__(self) -> None:
        self._longest, self._what = 0.0, ""

    def note(self, seconds: float, handle: asyncio.Handle) -> None:
        if seconds > self._longest:
            self._longest, self._what = seconds, repr(handle)[:300]

    def take(self) -> Hold:
        found = self._longest, self._what
        self._longest, self._what = 0.0, ""
        return found


def shortest(act: Callable[[], Hold]) -> Hold:
    """The shortest hold of an `act` that is repeated up to TRIES times, or until a hold is short enough."""
    found = act()
    for _ in range(1, TRIES):
        if found[0] > HELD_MAX_S:
            found = min(found, act())
    return found


@contextmanager
def loop_holds(loop: asyncio.AbstractEventLoop) -> Iterator[Holds]:
    """Record how long each callback holds `loop`, an event loop of asyncio's own, in any thread."""
    holds, ran, used_s = Holds(), asyncio.Handle._run, SystemClock().processor_s
    ident = asyncio.run_coroutine_threadsafe(_ident(), loop).result()

    def run(handle: asyncio.Handle) -> Any:
        if threading.get_ident() != ident:
            return ran(handle)
        began = used_s()
        try:
            return ran(handle)
        finally:
            holds.note(used_s() - began, handle)

    gc.collect()
    gc.disable()  # the tests' own objects are looked at as well, which no gateway has
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", run)
            yield holds
    finally:
        gc.enable()


async def _ident() -> int:
    return threading.get_ident()


def longest_call(work: Callable[[], object]) -> tuple[float, str]:
    """The longest call of a function written in C while `work` is done, in seconds, and which: it may hold
    the interpreter's lock for so long.
    """
    used_s = SystemClock().processor_s
    longest, began = (0.0, ""), 0.0

    def note(_: FrameType, event: str, function: Any) -> None:
        nonlocal longest, began
        if event == "c_call":
            began = used_s()
        elif event in ("c_return", "c_exception") and began:
            longest = max(longest, (used_s() - began, repr(function)[:200]))
            began = 0.0
        else:
            began = 0.0  # it has called Python, where the lock is given up

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return longest
