"""Time, random numbers and ids: no other module asks the system for them. A Clock is handed in everywhere."""

import functools
import os
import random
import sys
import threading
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Protocol

from log_tables.errors import InvalidArgument, StoreUnavailable
from log_tables.limits import CONFIRMATION_MAX_AGE_S

_GOES_ON_IN_SLEEP = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC_RAW"}
"""By `sys.platform`, the clock that nobody sets and that goes on while the machine sleeps. One name means
different clocks: CLOCK_MONOTONIC_RAW of Linux stands still in sleep. `time.monotonic` stands still on both.
"""


def sleepless_clock(platform: str, names: Container[str]) -> str:
    """The name of the clock for `Clock.boottime` on `platform`, among `names`, those of the module `time`.

    Raises InvalidArgument where there is none: fencing relies on such a clock.
    """
    name = _GOES_ON_IN_SLEEP.get(platform)
    if name is None or name not in names:
        raise InvalidArgument(
            f"Python on this platform ({platform}) has no clock that goes on while the machine sleeps; "
            "without one, a leader that slept could lose records: open tables on Linux or macOS"
        )
    return name


@functools.cache
def _boottime_id() -> int:
    clock_id: int = getattr(time, sleepless_clock(sys.platform, vars(time)))
    return clock_id


class Clock(Protocol):
    """Time, randomness and ids."""

    def now_ms(self) -> int:
        """The wall clock in milliseconds since 1970 UTC. It may jump."""
        ...

    def now_us(self) -> int:
        """The wall clock in microseconds since 1970 UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, and that stand still while the machine sleeps."""
        ...

    def processor_s(self) -> float:
        """Seconds that this thread has had a processor."""
        ...

    def boottime(self) -> float:
        """Seconds that never go back, and that go on while the machine sleeps. Fencing needs them.

        Raises InvalidArgument on a platform without such a clock.
        """
        ...

    def unique_id(self) -> str:
        """32 hexadecimal digits, never the same twice."""
        ...

    def random_hex(self, digits: int) -> str:
        """`digits` random hexadecimal digits."""
        ...

    def random(self) -> float:
        """A random number in [0, 1)."""
        ...

    def pause(self, seconds: float) -> None:
        """Let `seconds` pass before a retry."""
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing pauses between attempts, in seconds: `first_s`, then each `factor` times the last, up to
    `max_s`.
    """

    first_s: float
    max_s: float
    factor: float = 2

    def after(self, pause_s: float) -> float:
        """The pause that follows one of `pause_s`."""
        return min(pause_s * self.factor, self.max_s)

    def attempts(self, clock: Clock, most: int) -> Iterator[int]:
        """Up to `most` attempts: 0, 1, … Between two of them a random part of the pause passes.

        Processes that hindered one another then go on at different times.
        """
        pause_s = self.first_s
        for attempt in range(most):
            if attempt:
                clock.pause(pause_s * clock.random())
                pause_s = self.after(pause_s)
            yield attempt


class SystemClock:
    """The machine's clock and the operating system's randomness."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()

    def processor_s(self) -> float:
        return time.thread_time()

    def boottime(self) -> float:
        return time.clock_gettime(_boottime_id())

    def unique_id(self) -> str:
        return os.urandom(16).hex()

    def random_hex(self, digits: int) -> str:
        return os.urandom((digits + 1) // 2).hex()[:digits]

    def random(self) -> float:
        return random.random()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only by its methods, with seeded randomness: two runs with one seed are equal."""

    def __init__(self, now_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        self._wall_us = now_ms * 1_000
        self._elapsed_us = self._slept_us = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on every clock."""
        with self._lock:
            self._wall_us += ms * 1_000
            self._elapsed_us += ms * 1_000

    def sleep(self, ms: int) -> None:
        """Let the machine sleep for `ms` milliseconds: `monotonic` stands still, the other clocks go on."""
        with self._lock:
            self._wall_us += ms * 1_000
            self._slept_us += ms * 1_000

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or (negative) back, as a wrong NTP server does."""
        with self._lock:
            self._wall_us += ms * 1_000

    def now_ms(self) -> int:
        return self._wall_us // 1_000

    def now_us(self) -> int:
        return self._wall_us

    def monotonic(self) -> float:
        return self._elapsed_us / 1e6

    def processor_s(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return (self._elapsed_us + self._slept_us) / 1e6

    def unique_id(self) -> str:
        return self.random_hex(32)

    def random_hex(self, digits: int) -> str:
        with self._lock:
            return f"{self._random.getrandbits(digits * 4):0{digits}x}"

    def random(self) -> float:
        with self._lock:
            return self._random.random()

    def pause(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))


def check_recent(clock: Clock, since: float, what: str) -> None:
    """Raise StoreUnavailable for an act (`what`) that was begun long ago: `since`, by `Clock.boottime`.

    Its process may have slept, and jobs have deleted by their age the files that it put, or saw, at first.
    """
    if clock.boottime() - since > CONFIRMATION_MAX_AGE_S:
        raise StoreUnavailable(  # nobody asked for what is wrong
            f"{what} took more than {CONFIRMATION_MAX_AGE_S // 60} minutes and was dropped; repeat it"
        )


def timer() -> float:
    """Seconds from an arbitrary point, to measure durations."""
    return time.perf_counter()
