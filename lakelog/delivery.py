"""What becomes of the records of a batch, and the futures that tell it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from log_tables.errors import LakelogError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is. `offset` is None with acks "0", and where it is no longer known after a repeat."""

    topic: str
    partition: int
    offset: int | None


class Outcome:
    """What became of a batch, once that is known: all its records share it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.base_offset: int | None = None
        self.error: Exception | None = None
        self.asked = False
        self._settled = False
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def settled(self) -> bool:
        return self._settled

    def settle(self, base_offset: int | None, error: Exception | None) -> None:
        """Say what became of it, once."""
        with self._changed:
            self.base_offset, self.error, self._settled = base_offset, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            _call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is settled; says whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._settled, timeout_s)

    def when_settled(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not self._settled:
                self._callbacks.append(callback)
                return
        _call(callback)

    def __del__(self) -> None:
        # As asyncio does: an error that nobody can ask for any more is not swallowed.
        if self.error is not None and not self.asked:
            _log.error("records for topic %s are not delivered: %s", self.topic, self.error)


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 -- it is the caller's code, in a thread of ours
        _log.exception("the callback of a delivery failed")


class Delivery:
    """The future of one record, with the methods of concurrent.futures.Future that make sense for it."""

    __slots__ = ("_outcome", "_place")

    def __init__(self, outcome: Outcome, place: int) -> None:
        self._outcome, self._place = outcome, place

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome.settled

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises why it is not there, and TimeoutError after `timeout_s`."""
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        outcome = self._outcome
        offset = None if outcome.base_offset is None else outcome.base_offset + self._place
        return RecordMetadata(outcome.topic, outcome.partition, offset)

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """Why the record is not delivered, None when it is. Raises TimeoutError after `timeout_s`."""
        self._outcome.asked = True
        if not self._outcome.wait(timeout_s):
            raise TimeoutError(f"after {timeout_s:g} s it is not known what became of the record")
        return self._outcome.error

    def add_done_callback(self, callback: "Callable[[Delivery], None]") -> None:
        """Call `callback(self)` when it is known: in a thread of the producer, or at once, here."""
        self._outcome.asked = True
        self._outcome.when_settled(lambda: callback(self))


def refused(topic: str, error: LakelogError) -> Delivery:
    """The future of a record that is not sent at all."""
    outcome = Outcome(topic, -1)
    outcome.settle(None, error)
    return Delivery(outcome, 0)
