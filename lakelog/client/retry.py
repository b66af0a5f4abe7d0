"""Requests that are repeated while no gateway can do them."""

from collections.abc import Callable
from typing import TypeVar

from log_tables.clock import Clock
from log_tables.errors import LakelogError

PAUSE_S = 0.1
"""Between two attempts, where the gateway does not say how long."""

Answer = TypeVar("Answer")
MayRepeat = Callable[[LakelogError], bool]


class Retry:
    """Whether an attempt is repeated: for `timeout_s` after its first error, if `may_repeat` accepts it."""

    def __init__(self, may_repeat: MayRepeat, timeout_s: float, clock: Clock) -> None:
        self._may_repeat, self._timeout_s, self._clock = may_repeat, timeout_s, clock
        self._deadline: float | None = None

    def pause_s(self, error: LakelogError) -> float | None:
        """The seconds before the next attempt; None: there is none."""
        now_s = self._clock.monotonic()
        if self._deadline is None:
            self._deadline = now_s + self._timeout_s
        pause_s = float(error.details.get("retry_after_s", PAUSE_S))
        return pause_s if self._may_repeat(error) and now_s + pause_s <= self._deadline else None


def retry(attempt: Callable[[], Answer], may_repeat: MayRepeat, timeout_s: float, clock: Clock) -> Answer:
    """The result of `attempt`, tried again for `timeout_s` after its first error that `may_repeat` accepts.

    Raises the first error that it does not accept, or the last one when the time is over.
    """
    again = Retry(may_repeat, timeout_s, clock)
    while True:
        try:
            return attempt()
        except LakelogError as error:
            pause_s = again.pause_s(error)
            if pause_s is None:
                raise
        clock.pause(pause_s)
