"""Requests that are repeated while no gateway can do them."""

from collections.abc import Callable
from typing import TypeVar

from log_tables.clock import Clock
from log_tables.errors import LakelogError

PAUSE_S = 0.1
"""Between two attempts, where the gateway does not say how long."""

Answer = TypeVar("Answer")


def retry(
    attempt: Callable[[], Answer], may_repeat: Callable[[LakelogError], bool], timeout_s: float, clock: Clock
) -> Answer:
    """The result of `attempt`, tried again for `timeout_s` after its first error that `may_repeat` accepts.

    Raises the first error that it does not accept, or the last one when the time is over.
    """
    deadline: float | None = None
    while True:
        try:
            return attempt()
        except LakelogError as error:
            now_s = clock.monotonic()
            deadline = now_s + timeout_s if deadline is None else deadline
            pause_s = float(error.details.get("retry_after_s", PAUSE_S))
            if not may_repeat(error) or now_s + pause_s > deadline:
                raise
            clock.pause(pause_s)
