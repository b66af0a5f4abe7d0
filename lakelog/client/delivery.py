"""What becomes of the records of a batch, the futures that tell it, and who has not asked them."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from log_tables.errors import InvalidArgument, LakelogError

_log = logging.getLogger(__name__)

REMEMBERED_MAX = 1_000
"""Failed batches whose futures may still be asked: each takes a few hundred bytes until the next flush."""


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is. `offset` is None with acks "0", and where it is no longer known after a repeat."""

    topic: str
    partition: int
    offset: int | None


class Outcome:
    """What became of a batch, once that is known: all its records share it.

    `records` is how many there are, and `untold` of how many nobody has asked, or been told. `senders` are
    the threads that send it: they may not wait for it.
    """

    def __init__(self, topic: str, partition: int, senders: Collection[threading.Thread] = ()) -> None:
        self.topic, self.partition, self._senders = topic, partition, senders
        self.base_offset: int | None = None
        self.error: Exception | None = None
        self.records = 0
        self.untold = 0
        self._settled = False
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def settled(self) -> bool:
        return self._settled

    def join(self) -> int:
        """Take one more record; its place in the batch."""
        with self._changed:
            self.records += 1
            self.untold += 1
            return self.records - 1

    def take(self) -> None:
        """Somebody hears of one more record."""
        with self._changed:
            self.untold = max(0, self.untold - 1)

    def give_back(self) -> None:
        """Who waited for one of the records has stopped waiting."""
        with self._changed:
            self.untold += 1

    def tell(self) -> int:
        """Somebody hears of all the others; how many these are."""
        with self._changed:
            untold, self.untold = self.untold, 0
            return untold

    def settle(self, base_offset: int | None, error: Exception | None) -> None:
        """Say what became of it, once."""
        with self._changed:
            self.base_offset, self.error, self._settled = base_offset, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            _call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is settled; says whether it is. Raises InvalidArgument in a thread that sends it."""
        if not self._settled:
            check_may_wait(self._senders)
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
        if self.error is not None and self.untold:
            _log.error("%d records for topic %s are not delivered: %s", self.untold, self.topic, self.error)


def check_may_wait(senders: Collection[threading.Thread]) -> None:
    """Raise InvalidArgument in one of `senders`, where callbacks run: what it would wait for it has to do."""
    if threading.current_thread() in senders:
        raise InvalidArgument(
            "a callback of a delivery cannot wait for its own producer (flush, close, result, exception): "
            "it runs in a thread that sends; wait in another thread"
        )


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 -- it is the caller's code, in a thread of ours
        _log.exception("the callback of a delivery failed")


class Delivery:
    """The future of one record, with the methods of concurrent.futures.Future that make sense for it.

    Who calls `result`, `exception` or `add_done_callback` has taken the future: `flush` and `close` of the
    producer do not raise for this record any more.
    """

    __slots__ = ("_outcome", "_place", "_taken")

    def __init__(self, outcome: Outcome, place: int) -> None:
        self._outcome, self._place, self._taken = outcome, place, False

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome.settled

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises why it is not there, TimeoutError after `timeout_s`, and
        InvalidArgument where a callback of the producer would wait for it.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        outcome = self._outcome
        offset = None if outcome.base_offset is None else outcome.base_offset + self._place
        return RecordMetadata(outcome.topic, outcome.partition, offset)

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """Why the record is not delivered, None when it is. Raises as `result` does."""
        self._take()
        known = False
        try:
            known = self._outcome.wait(timeout_s)
        finally:
            if not known:
                self._taken = False
                self._outcome.give_back()
        if not known:
            raise TimeoutError(f"after {timeout_s:g} s it is not known what became of the record")
        return self._outcome.error

    def add_done_callback(self, callback: "Callable[[Delivery], None]") -> None:
        """Call `callback(self)` when it is known: in a thread of the producer, or at once, here.

        It may send more, but wait for nothing that the producer is to do: that thread sends it.
        """
        self._take()
        self._outcome.when_settled(lambda: callback(self))

    def _take(self) -> None:
        if not self._taken:
            self._taken = True
            self._outcome.take()


class Undelivered:
    """The batches that failed since somebody was told of them. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._failed: list[tuple[Outcome, Exception]] = []
        self._forgotten = 0

    def add(self, outcome: Outcome, error: Exception) -> None:
        """Remember a batch that failed; of too many the first is kept, the others are counted and logged."""
        if len(self._failed) >= REMEMBERED_MAX:
            self._failed = [each for each in self._failed if each[0].untold]
        if len(self._failed) >= REMEMBERED_MAX:
            self._forgotten += self._failed.pop(1)[0].untold
        if outcome.untold:
            self._failed.append((outcome, error))

    def pop(self) -> Exception | None:
        """The error of the first record of which nobody was told, with a count of all; it forgets them."""
        failed, self._failed = self._failed, []
        count, self._forgotten = self._forgotten, 0
        first: Exception | None = None
        for outcome, error in failed:
            untold = outcome.tell()
            count += untold
            if untold and first is None:
                first = error
        return None if first is None else _counted(first, count)


def _counted(first: Exception, count: int) -> Exception:
    """`first` as a new error of its kind, which says of how many records it is the first."""
    message = f"{count} record{'s were' if count > 1 else ' was'} not delivered; the first: {first}"
    if isinstance(first, LakelogError):
        return type(first)(message, **{**first.details, "records": count})
    error = LakelogError(message, records=count)
    error.__cause__ = first
    return error
