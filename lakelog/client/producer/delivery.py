"""The result of a batch, the future of each of its records, and the failures that nobody has seen."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from log_tables.counts import counted
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


class BatchResult:
    """The result of a batch, which all its records share.

    `records` is how many there are, which the owner of the batch counts, and `unobserved` how many of their
    futures nobody has asked. `senders` are the threads that send the batch; they must not wait for it.
    """

    def __init__(self, topic: str, partition: int, senders: Collection[threading.Thread] = ()) -> None:
        self.topic, self.partition, self._senders = topic, partition, senders
        self.base_offset: int | None = None
        self.error: Exception | None = None
        self.records = self._observed = 0
        self._done = False
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        return self._done

    @property
    def unobserved(self) -> int:
        return self.records - self._observed

    def join(self) -> int:
        """Add a record. Returns its index in the batch."""
        self.records += 1
        return self.records - 1

    def observe(self) -> None:
        """The future of one more record was asked."""
        with self._changed:
            self._observed = min(self.records, self._observed + 1)

    def unobserve(self) -> None:
        """The caller that asked a future has stopped waiting."""
        with self._changed:
            self._observed -= 1

    def observe_all(self) -> int:
        """All other records are reported. Returns how many they are."""
        with self._changed:
            unobserved, self._observed = self.unobserved, self.records
            return unobserved

    def resolve(self, base_offset: int | None, error: Exception | None) -> None:
        """Set the result, once."""
        with self._changed:
            self.base_offset, self.error, self._done = base_offset, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            _call(callback)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the result; says whether it is there. Raises InvalidArgument in one of `senders`."""
        if not self._done:
            check_may_wait(self._senders)
        with self._changed:
            return self._changed.wait_for(lambda: self._done, timeout_s)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        _call(callback)

    def __del__(self) -> None:
        # As asyncio does: an error that nobody can ask for any more is not swallowed.
        if self.error is not None and self.unobserved:
            _log.error(
                "topic %s did not get %s: %s", self.topic, counted(self.unobserved, "record"), self.error
            )


def check_may_wait(senders: Collection[threading.Thread]) -> None:
    """Raise InvalidArgument in one of `senders`: callbacks run there, and would wait for their own thread."""
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


class Handle(msgspec.Struct, eq=False):
    """The record at `_index` of a batch. A struct, as one is made for each record that is sent."""

    _result: BatchResult
    _index: int
    _taken: bool = False

    def done(self) -> bool:
        """Whether the result of the record is known."""
        return self._result.done

    def _placed(self) -> RecordMetadata:
        """Where the record is, if it is known. Raises the error that kept it from the log."""
        result = self._result
        if result.error is not None:
            raise result.error
        offset = None if result.base_offset is None else result.base_offset + self._index
        return RecordMetadata(result.topic, result.partition, offset)

    def _take(self) -> None:
        if not self._taken:
            self._taken = True
            self._result.observe()

    def _leave(self) -> None:
        self._taken = False
        self._result.unobserve()


class Delivery(Handle):
    """The future of one record, with the methods of concurrent.futures.Future that make sense for it.

    A call of `result`, `exception` or `add_done_callback` takes the future: `flush` and `close` of the
    producer no longer raise for this record.
    """

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is. Raises the error that kept it from the log, TimeoutError after `timeout_s`,
        and InvalidArgument in a callback of the producer.
        """
        self.exception(timeout_s)
        return self._placed()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """The error that kept the record from the log, or None. Raises TimeoutError and InvalidArgument."""
        self._take()
        known = False
        try:
            known = self._result.wait(timeout_s)
        finally:
            if not known:
                self._leave()
        if not known:
            raise TimeoutError(f"after {timeout_s:g} s the result of the record is not known; ask again")
        return self._result.error

    def add_done_callback(self, callback: "Callable[[Delivery], None]") -> None:
        """Call `callback(self)` when the result is known: in a thread of the producer, or here if it is
        known.

        The callback may send more records. It must not wait for the producer, whose thread it runs in.
        """
        self._take()
        self._result.add_done_callback(lambda: callback(self))


class Undelivered:
    """The batches that failed and were not reported yet. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self._failed: list[tuple[BatchResult, Exception]] = []
        self._forgotten = 0

    def add(self, result: BatchResult, error: Exception) -> None:
        """Remember a batch that failed. Of too many the first is kept; the others are counted and logged."""
        if len(self._failed) >= REMEMBERED_MAX:
            self._failed = [each for each in self._failed if each[0].unobserved]
        if len(self._failed) >= REMEMBERED_MAX:
            self._forgotten += self._failed.pop(1)[0].unobserved
        if result.unobserved:
            self._failed.append((result, error))

    def pop(self) -> Exception | None:
        """The error of the first unreported record, with the number of all of them. It forgets them."""
        failed, self._failed = self._failed, []
        count, self._forgotten = self._forgotten, 0
        first: Exception | None = None
        for result, error in failed:
            unobserved = result.observe_all()
            count += unobserved
            if unobserved and first is None:
                first = error
        return None if first is None else _counted(first, count)


def _counted(first: Exception, count: int) -> Exception:
    """A new error of the kind of `first`, with the number of records that failed."""
    verb = "was" if count == 1 else "were"
    message = f"{counted(count, 'record')} {verb} not delivered; the first: {first}"
    if isinstance(first, LakelogError):
        return type(first)(message, **{**first.details, "records": count})
    error = LakelogError(message, records=count)
    error.__cause__ = first
    return error
